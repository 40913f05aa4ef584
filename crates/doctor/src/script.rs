//! The script that mends what was found, for people to read and to run.

use crate::finding::{Finding, one_line, quoted};
use std::fmt::Write;

/// The file that keeps the settings of the kernel over a restart.
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-konkordia.conf";

/// A shell script with one block for each finding that is not as it should be; `host` names the machine. It is not run
/// here: people read it first.
pub fn script(host: &str, findings: &[Finding]) -> String {
    let wrong: Vec<&Finding> = findings.iter().filter(|finding| finding.is_wrong()).collect();
    let mut out = format!(
        "#!/usr/bin/env bash\n# Proposed by `konkordia doctor` for {}. Read it, then run it as root.\n\
         # The settings in {SYSCTL_FILE} are kept over a restart; all others last until the next one.\n\
         set -euo pipefail\n",
        one_line(host)
    );
    if wrong.is_empty() {
        out.push_str("\n# Nothing to change.\n");
    }
    let (kept, others): (Vec<&Finding>, Vec<&Finding>) = wrong.into_iter().partition(|finding| !finding.sysctl.is_empty());
    if !kept.is_empty() {
        let _ = writeln!(
            out,
            "\n# Settings of the kernel, added to those of earlier scripts: of two for one key the later one counts.\ncat >> {SYSCTL_FILE} <<'END'"
        );
        for finding in &kept {
            comment(&mut out, finding);
            for (key, value) in &finding.sysctl {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        let _ = writeln!(out, "END\nsysctl -p {}", quoted(SYSCTL_FILE));
    }
    // What a finding of the first kind needs beside its setting.
    for finding in kept.into_iter().filter(|finding| !finding.fix.is_empty()).chain(others) {
        out.push('\n');
        comment(&mut out, finding);
        for line in &finding.fix {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

fn comment(out: &mut String, finding: &Finding) {
    let Finding { check, subject, measured, wanted, why, .. } = finding;
    let of = if subject.is_empty() { String::new() } else { format!(" of {subject}") };
    let _ = writeln!(out, "# {check}{of}: {measured}; wanted: {wanted}\n# {why}");
}
