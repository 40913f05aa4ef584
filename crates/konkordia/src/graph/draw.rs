//! `konkordia graph draw`: the stages of a graph as text, as a picture, or for Graphviz.

use super::args::GraphDrawArgs;
use super::status;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::file::{Edge, Graph, Place, Stage, Transport};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Size of the box of a stage in a picture, and the way to the next one, in px.
const BOX: [usize; 2] = [250, 62];
const GAP: [usize; 2] = [170, 24];

/// `konkordia graph draw`
pub fn command(graph: &Graph, folder: &Path, args: &GraphDrawArgs) -> Result<Exit, Failure> {
    let states = if args.status { status::states(graph, folder)? } else { Vec::new() };
    let drawing = Drawing { graph, states: &states };
    let write = |path: &Path, text: String| std::fs::write(path, text).map_err(|error| Failure::io("cannot write", path, &error));
    args.svg.as_deref().map_or(Ok(()), |path| write(path, drawing.svg()))?;
    args.dot.as_deref().map_or(Ok(()), |path| write(path, drawing.dot()))?;
    if args.svg.is_none() && args.dot.is_none() {
        console::to_stdout(drawing.text().trim_end());
    }
    Ok(Exit::Complete)
}

/// A graph, and the states of its processes if they are to be shown.
struct Drawing<'a> {
    graph: &'a Graph,
    states: &'a [(String, Value)],
}

/// A stage at its place: how many edges lead to it, and the line on which it stands.
struct Placed<'a> {
    stage: &'a Stage,
    edge: Option<&'a Edge>,
    depth: usize,
    line: usize,
    from_line: usize,
}

impl<'a> Drawing<'a> {
    /// The stages, each behind the one before it; the first one behind a stage on the same line.
    fn placed(&self) -> Vec<Placed<'a>> {
        let (mut out, mut lines) = (Vec::new(), 0);
        for stage in self.graph.stages.iter().filter(|stage| stage.kind.is_first()) {
            let line = lines;
            lines += 1;
            out.push(Placed { stage, edge: None, depth: 0, line, from_line: line });
            self.place_behind(stage, (1, line), &mut lines, &mut out);
        }
        out
    }

    fn place_behind(&self, stage: &'a Stage, (depth, from_line): (usize, usize), lines: &mut usize, out: &mut Vec<Placed<'a>>) {
        for (nth, edge) in self.graph.edges.iter().filter(|edge| edge.from == stage.name).enumerate() {
            let Some(to) = self.graph.stage(&edge.to) else { continue };
            let line = if nth == 0 { from_line } else { *lines };
            *lines = (*lines).max(line + 1);
            out.push(Placed { stage: to, edge: Some(edge), depth, line, from_line });
            self.place_behind(to, (depth + 1, line), lines, out);
        }
    }

    /// What is said of a stage: its kind, processes and host, and its counts.
    fn about(&self, stage: &Stage) -> [String; 2] {
        let processes = if stage.workers == 1 { String::new() } else { format!(" x {}", stage.workers) };
        let host = if stage.host.is_empty() { String::new() } else { format!(" @ {}", stage.host) };
        let members: Vec<&Value> = self.states.iter().map(|(_, state)| state).filter(|s| s["stage"] == *stage.name).collect();
        let sum = |name: &str| members.iter().filter_map(|state| state["input"][name].as_u64()).sum::<u64>();
        let made = members.iter().flat_map(|state| state["edges"].as_array()).flatten();
        let produced = made.filter_map(|edge| edge["account"]["produced"].as_u64()).max().unwrap_or(0);
        let counts = match stage.kind.place() {
            _ if self.states.is_empty() => String::new(),
            _ if members.is_empty() => "no state".into(),
            Place::First => format!("{produced} images"),
            Place::Inner | Place::Last => {
                format!("{} taken, {} done, {} open, {} refused", sum("taken"), sum("done"), sum("open"), sum("refused"))
            }
        };
        [format!("{}{processes}{host}", stage.kind.name()), counts]
    }

    /// What is said of an edge.
    fn edge(edge: &Edge) -> String {
        let port = if edge.port == 0 { String::new() } else { format!(":{}", edge.port) };
        format!("{}{port} {}", transport(edge.transport), policy(edge))
    }

    /// As a tree of lines.
    fn text(&self) -> String {
        let mut out = String::new();
        for stage in self.graph.stages.iter().filter(|stage| stage.kind.is_first()) {
            self.branch(stage, None, "", "", &mut out);
        }
        out
    }

    fn branch(&self, stage: &Stage, edge: Option<&Edge>, lead: &str, below: &str, out: &mut String) {
        let [kind, counts] = self.about(stage);
        let by = edge.map_or_else(String::new, |edge| format!("  <- {}", Self::edge(edge)));
        let counts = if counts.is_empty() { counts } else { format!("  [{counts}]") };
        _ = writeln!(out, "{lead}{} ({kind}){by}{counts}", stage.name);
        let behind: Vec<&Edge> = self.graph.behind(&stage.name).collect();
        for (nth, edge) in behind.iter().enumerate() {
            let Some(to) = self.graph.stage(&edge.to) else { continue };
            let (fork, rest) = if nth + 1 < behind.len() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
            self.branch(to, Some(edge), &format!("{below}{fork}"), &format!("{below}{rest}"), out);
        }
    }

    /// For Graphviz. Names are letters, digits and underscores; texts are escaped.
    fn dot(&self) -> String {
        let mut out = String::from("digraph konkordia {\n  rankdir = LR;\n  node [shape = box];\n");
        let text = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        for stage in &self.graph.stages {
            let lines: Vec<String> = self.about(stage).iter().filter(|line| !line.is_empty()).map(|line| text(line)).collect();
            _ = writeln!(out, "  \"{}\" [label = \"{}\\n{}\"];", stage.name, stage.name, lines.join("\\n"));
        }
        for edge in &self.graph.edges {
            _ = writeln!(out, "  \"{}\" -> \"{}\" [label = \"{}\"];", edge.from, edge.to, text(&Self::edge(edge)));
        }
        out + "}\n"
    }

    /// A picture.
    fn svg(&self) -> String {
        let placed = self.placed();
        let at = |depth: usize, line: usize| [20 + depth * (BOX[0] + GAP[0]), 20 + line * (BOX[1] + GAP[1])];
        let most = |of: fn(&Placed<'_>) -> usize| placed.iter().map(of).max().unwrap_or(0);
        let [width, height] = at(most(|one| one.depth), most(|one| one.line));
        let (width, height) = (width + BOX[0] + 20, height + BOX[1] + 20);
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut out = head;
        for one in &placed {
            let [x, y] = at(one.depth, one.line);
            if let Some(edge) = one.edge {
                let [x0, y0] = at(one.depth - 1, one.from_line);
                let (x0, y0, y1) = (x0 + BOX[0], y0 + BOX[1] / 2, y + BOX[1] / 2);
                let middle = x0 + GAP[0] / 8;
                let path = format!("M{x0} {y0} H{middle} V{y1} H{x}");
                _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"#444\"/>");
                _ = writeln!(out, "<path d=\"M{x} {y1} l-8 -4 v8 z\" fill=\"#444\"/>");
                let label = xml(&Self::edge(edge));
                _ = writeln!(out, "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#444\">{label}</text>", middle + 4, y1 - 6);
            }
            let [kind, counts] = self.about(one.stage).map(|line| xml(&line));
            let [w, h] = BOX;
            _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"4\" fill=\"#f2f5f9\" stroke=\"#456\"/>"
            );
            let x = x + 10;
            _ = writeln!(out, "<text x=\"{x}\" y=\"{}\" font-weight=\"bold\">{}</text>", y + 20, xml(&one.stage.name));
            _ = writeln!(out, "<text x=\"{x}\" y=\"{}\">{kind}</text>", y + 37);
            _ = writeln!(out, "<text x=\"{x}\" y=\"{}\" font-size=\"11\">{counts}</text>", y + 54);
        }
        out + "</svg>\n"
    }
}

fn transport(transport: Transport) -> String {
    format!("{transport:?}").to_lowercase()
}

/// The policy as the graph file spells it.
fn policy(edge: &Edge) -> String {
    serde_json::to_value(edge.policy).ok().and_then(|policy| policy.as_str().map(str::to_owned)).unwrap_or_default()
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TREE: &str = r#"
        [[stage]]
        name = "read"
        kind = "files"
        files = ["run.h5"]
        [[stage]]
        name = "correct"
        kind = "python"
        function = "beamline:correct"
        workers = 4
        [[stage]]
        name = "all"
        kind = "write"
        file = "all"
        [[stage]]
        name = "raw"
        kind = "write"
        file = "raw"
        [[edge]]
        from = "read"
        to = "correct"
        port = 9000
        [[edge]]
        from = "correct"
        to = "all"
        transport = "ipc"
        policy = "by-key"
        [[edge]]
        from = "read"
        to = "raw"
        transport = "ipc"
    "#;

    #[test]
    fn a_tree_of_stages_is_drawn() {
        let graph = Graph::parse("graph.toml", TREE).unwrap();
        let state = |stage: &str, taken: u64| {
            (format!("{stage}-0"), json!({ "stage": stage, "input": { "taken": taken, "done": taken, "open": 0, "refused": 1 } }))
        };
        let plain = Drawing { graph: &graph, states: &[] };
        let expected = "read (files)\n├─ correct (python x 4)  <- tcp:9000 least-workload\n│  └─ all (write)  <- ipc by-key\n\
                        └─ raw (write)  <- ipc least-workload\n";
        assert_eq!(plain.text(), expected);
        let states = [state("correct", 7), state("all", 5)];
        let with_states = Drawing { graph: &graph, states: &states };
        assert!(with_states.text().contains("all (write)  <- ipc by-key  [5 taken, 5 done, 0 open, 1 refused]"));
        assert!(with_states.text().contains("raw (write)  <- ipc least-workload  [no state]"));
        let dot = plain.dot();
        assert!(dot.contains("\"read\" -> \"correct\" [label = \"tcp:9000 least-workload\"];"), "{dot}");
        let svg = with_states.svg();
        assert_eq!((svg.matches("<rect x=").count(), svg.matches(" l-8 -4 v8 z").count()), (4, 3), "{svg}");
        assert!(svg.contains("7 taken, 7 done, 0 open, 1 refused"));
        let lines: Vec<usize> = plain.placed().iter().map(|one| one.line).collect();
        assert_eq!(lines, [0, 0, 0, 1]);
    }
}
