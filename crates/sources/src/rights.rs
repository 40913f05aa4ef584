//! How a program gets the rights that a backend needs.

/// The command that gives this program the `capabilities` (lower case, without `cap_`), and where else they are given.
/// `family` names the lines of the service.
pub(crate) fn fix(capabilities: &[&str], family: &str) -> String {
    let program = std::env::current_exe().map_or("konkordia".into(), |path| path.display().to_string());
    let named: Vec<String> = capabilities.iter().map(|name| format!("cap_{name}")).collect();
    let added: Vec<String> = capabilities.iter().map(|name| format!("--cap-add {}", name.to_uppercase())).collect();
    format!(
        "sudo setcap {}+ep {program}\n(in a service: see the lines for {family} in konkordia.service; in a container: {})",
        named.join(","),
        added.join(" ")
    )
}
