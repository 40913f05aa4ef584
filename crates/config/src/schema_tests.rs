use super::*;

#[test]
fn every_key_stands_in_a_table_and_once() {
    let keys: Vec<&Key> = all().collect();
    for (i, k) in keys.iter().enumerate() {
        assert!(TABLES.iter().any(|t| t.0 == k.table), "{}", k.name);
        assert!(!keys[..i].iter().any(|o| (o.table, o.name) == (k.table, k.name)), "{} twice", k.name);
        assert!(!k.doc.is_empty() && !k.doc.ends_with('.') && !k.default.is_empty(), "{}", k.name);
    }
}

/// docs/configuration.md holds the table made from the keys: `konkordia config schema --markdown`, between the markers.
#[test]
fn the_documentation_is_what_the_program_reads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    let between = page.split("<!-- keys:begin -->\n").nth(1).and_then(|rest| rest.split("<!-- keys:end -->").next());
    let wanted = markdown();
    assert!(
        between.map(str::trim) == Some(wanted.trim()),
        "docs/configuration.md is out of date; put the output of `konkordia config schema --markdown` between its markers"
    );
}

#[test]
fn the_json_schema_names_every_key() {
    let schema = json_schema();
    for k in all() {
        let table = match ARRAYS.iter().find(|array| array.0 == k.table) {
            Some((_, "", key)) => &schema["properties"][key]["items"],
            Some((_, home, key)) => &schema["properties"][home]["properties"][key]["items"],
            None if NAMED.iter().any(|named| named.0 == k.table) => &schema["properties"][k.table]["additionalProperties"],
            None => &schema["properties"][k.table],
        };
        assert!(table["properties"][k.name].is_object(), "{}.{}", k.table, k.name);
    }
}
