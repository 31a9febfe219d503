//! The `whylate` command, as its users meet it.

#[test]
fn stub() {
    assert_eq!(insta::Settings::new().prepend_module_to_snapshot(), true);
    let _ = jsonschema::validator_for;
}
