// Requests that the image needs beside its frames, with the token of the tab.

import { ApiProblem, serviceUrl, tokensOfTab } from "../api/client";

async function problemIn(answer: Response): Promise<ApiProblem> {
  const fields: Partial<Record<string, unknown>> = await answer.json().catch(() => ({}));
  const text = (value: unknown) => (typeof value === "string" ? value : undefined);
  const detail = text(fields.detail) ?? `an answer with status ${answer.status}`;
  return new ApiProblem({
    code: text(fields.code) ?? "not_konkordia",
    detail,
    hint: text(fields.hint),
    status: answer.status,
  });
}

/** The answer to GET of this path below api/v1; throws an ApiProblem if it is none of success. */
export async function fetchFromService(path: string): Promise<Response> {
  const token = tokensOfTab.read();
  const headers = new Headers();
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  const url = serviceUrl(`api/v1/${path}`, document.baseURI);
  const answer = await fetch(url, { headers, cache: "no-store" }).catch(() => {
    throw new ApiProblem({
      code: "no_contact",
      detail: `no answer from ${url.host}`,
      hint: "look whether the service is running",
      status: 0,
    });
  });
  if (!answer.ok) throw await problemIn(answer);
  return answer;
}
