//! Our structures and constants against the headers of the libraries: a program of C prints what the compiler makes of
//! them. Counts as skipped where the headers or a compiler are absent (Debian: libfabric-dev, libibverbs-dev, gcc).

use super::library::Structure;
use super::skip;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

/// One library: its headers, what has to be there to link with it, and our tables.
struct Library {
    headers: &'static [&'static str],
    package: &'static str,
    option: &'static str,
    /// Functions that are looked for in the library, which must exist and be of that library.
    functions: &'static [&'static str],
    structures: Vec<Structure>,
    /// Structures of the library that we allocate, so that their size counts too; others are only reached by pointers.
    allocated: &'static [&'static str],
    constants: Vec<(&'static str, u64)>,
}

/// The numbers that a program of C prints, by their names; `None` and a skipped test where it cannot be made.
#[track_caller]
fn of_the_compiler(library: &Library) -> Option<HashMap<String, u64>> {
    let missing =
        library.headers.iter().map(|header| format!("/usr/include/{header}")).find(|path| !std::path::Path::new(path).exists());
    if let Some(path) = missing {
        skip::skipped(&format!("no {path}; apt-get install {}", library.package));
        return None;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        skip::skipped("no compiler of C (cc)");
        return None;
    }
    let mut program = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in library.headers {
        writeln!(program, "#include <{header}>").unwrap();
    }
    program += "int main(void) {\n";
    for (structure, _, fields) in &library.structures {
        writeln!(program, "printf(\"{structure} %zu\\n\", sizeof(struct {structure}));").unwrap();
        for (field, _) in fields {
            writeln!(program, "printf(\"{structure}.{field} %zu\\n\", offsetof(struct {structure}, {field}));").unwrap();
        }
    }
    for (constant, _) in &library.constants {
        writeln!(program, "printf(\"{constant} %llu\\n\", (unsigned long long) ({constant}));").unwrap();
    }
    for function in library.functions {
        writeln!(program, "printf(\"{function} %d\\n\", (void *) {function} != NULL);").unwrap();
    }
    program += "return 0; }\n";
    let folder = std::env::temp_dir().join(format!("konkordia-abi-{}-{}", library.package, std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("abi.c"), folder.join("abi"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&binary).arg(library.option).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    Some(lines.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect())
}

#[track_caller]
fn compare(library: &Library) {
    let Some(theirs) = of_the_compiler(library) else { return };
    let mut wrong = Vec::new();
    for (structure, size, fields) in &library.structures {
        let (size, theirs_size) = (*size as u64, theirs[*structure]);
        let is_allocated = library.allocated.contains(structure);
        if size > theirs_size || (is_allocated && size != theirs_size) {
            wrong.push(format!("{structure} has {size} bytes, in the header {theirs_size}"));
        }
        for (field, offset) in fields {
            let at = theirs[&format!("{structure}.{field}")];
            if *offset as u64 != at {
                wrong.push(format!("{structure}.{field} is at {offset}, in the header at {at}"));
            }
        }
    }
    for (constant, value) in &library.constants {
        if *value != theirs[*constant] {
            wrong.push(format!("{constant} is {value}, in the header {}", theirs[*constant]));
        }
    }
    for function in library.functions {
        assert_eq!(theirs[*function], 1, "{function}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown = library.allocated.iter().find(|name| !library.structures.iter().any(|(known, ..)| known == *name));
    assert_eq!(unknown, None, "no such structure");
}

#[test]
fn structures_and_constants_of_libfabric_are_those_of_its_headers() {
    compare(&Library {
        headers: &[
            "rdma/fabric.h",
            "rdma/fi_domain.h",
            "rdma/fi_endpoint.h",
            "rdma/fi_cm.h",
            "rdma/fi_eq.h",
            "rdma/fi_rma.h",
            "rdma/fi_errno.h",
        ],
        package: "libfabric-dev",
        option: "-lfabric",
        functions: super::fabric::FUNCTIONS,
        structures: super::fabric_abi::structures(),
        allocated: &["fi_av_attr", "fi_cq_attr", "fi_cq_data_entry", "fi_cq_err_entry", "fi_context2"],
        constants: super::fabric_abi::constants(),
    });
}

#[test]
fn structures_and_constants_of_libibverbs_are_those_of_its_headers() {
    compare(&Library {
        headers: &["infiniband/verbs.h"],
        package: "libibverbs-dev",
        option: "-libverbs",
        functions: super::verbs::FUNCTIONS,
        structures: super::verbs_abi::structures(),
        allocated: &[
            "ibv_port_attr",
            "ibv_qp_init_attr",
            "ibv_qp_attr",
            "ibv_ah_attr",
            "ibv_sge",
            "ibv_send_wr",
            "ibv_recv_wr",
            "ibv_wc",
            "ibv_flow_attr",
            "ibv_flow_spec_eth",
            "ibv_flow_spec_ipv4",
            "ibv_flow_spec_ipv6",
            "ibv_flow_spec_tcp_udp",
        ],
        constants: [super::verbs_abi::constants(), super::verbs_abi::members_before_the_context()].concat(),
    });
}

#[test]
fn a_host_without_a_device_says_so_and_what_to_do() {
    match super::verbs::devices() {
        Ok(devices) => assert!(!devices.is_empty()),
        Err(why) => assert!(why.contains("no RDMA device") || why.contains("libibverbs"), "{why}"),
    }
}
