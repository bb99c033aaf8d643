use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn fault(pattern: &str, limit: usize) -> (usize, String) {
    match expand(pattern, limit).unwrap_err().kind() {
        ErrorKind::Pattern { position, message, pattern: given } => {
            assert_eq!(given, pattern);
            (*position, message.clone())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn patterns_expand_as_in_python() {
    let table = include_str!("../../../tests/data/braces.json");
    let table: BTreeMap<String, Option<Vec<String>>> = match serde_json::from_str(table).unwrap() {
        serde_json::Value::Object(rows) => rows
            .into_iter()
            .map(|(pattern, expanded)| {
                let list = expanded
                    .as_array()
                    .map(|all| all.iter().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>());
                (pattern, list)
            })
            .collect(),
        _ => panic!("the table is an object"),
    };
    assert!(table.len() > 1000);
    for (pattern, expected) in table {
        assert_eq!(expand(&pattern, 1000).ok(), expected, "{pattern}");
    }
}

#[test]
fn errors_for_unbalanced_braces_have_their_position() {
    for (pattern, position) in
        [("a{", 1), ("é}", 2), ("a{b{c}", 1), ("{a,b}}", 5), ("}{", 0), ("{a}{b,{c}", 3), (r"{a\}", 0)]
    {
        let (at, message) = fault(pattern, 10);
        assert!(message.starts_with("unbalanced"), "{pattern}: {message}");
        assert_eq!(at, position, "{pattern}");
    }
}

#[test]
fn an_expansion_that_is_too_large_is_an_error_before_it_is_made() {
    assert_eq!(fault("x{0..99999999999}", 1000).0, 1);
    assert_eq!(fault(&"{a,b}".repeat(60), 1000).0, 5 * 9);
    assert_eq!(fault("{-9223372036854775808..9223372036854775807}", usize::MAX).0, 0);
    assert_eq!(fault("{1..18446744073709551616}", 1000).0, 1);
    assert!(fault(&"{".repeat(200_000), 1000).1.contains("deep"));
    assert!(fault(&format!("{}x{}", "{a,".repeat(101), "}".repeat(101)), 1000).1.contains("deep"));
    assert!(fault(&format!("{{{}1..2}}", "0".repeat(1 << 20)), 1000).1.contains("digits"));
    assert!(fault(&format!("{}{{1..100000}}", "x".repeat(1 << 20)), usize::MAX).1.contains("bytes"));
    assert_eq!(expand("{1..1000}", 1000).unwrap().len(), 1000);
    assert_eq!(fault("{0..1000}", 1000).0, 0);
}

#[test]
fn errors_for_digits_of_other_scripts_have_their_position() {
    for pattern in ["s-{٠..٣}", "s-{0..٣}", "s-{1..9..٢}", "s-{-１..3}"] {
        let (at, message) = fault(pattern, 100);
        assert!(at == 3 && message.contains("0 to 9"), "{pattern}: {at} {message}");
    }
    assert_eq!(expand("{é..ü}-{٠,٣}", 9).unwrap(), ["{é..ü}-٠", "{é..ü}-٣"]);
}

#[test]
fn a_line_feed_is_not_escaped() {
    assert_eq!(expand("a\\\n{b,c}", 9).unwrap(), ["a\\\nb", "a\\\nc"]);
}

proptest! {
    #[test]
    fn expanding_never_panics_and_the_computed_size_is_right(
        pattern in r"([{},\\\-ab é019]|\.\.|\{[0-9]\.\.[0-9]\}){0,24}",
    ) {
        match expand(&pattern, 500) {
            Ok(all) => {
                prop_assert!((1..=500).contains(&all.len()));
                let counted = BraceParser { text: &pattern, at: 0 }.sequence(0).unwrap().size();
                prop_assert_eq!(counted.count, all.len() as u64);
                prop_assert!(all.iter().map(|one| one.len() as u64).sum::<u64>() <= counted.bytes);
            }
            Err(error) => match error.kind() {
                ErrorKind::Pattern { position, .. } => prop_assert!(pattern.is_char_boundary(*position)),
                other => prop_assert!(false, "{other}"),
            },
        }
    }

    #[test]
    fn text_without_braces_is_unchanged(text in r"[^{}\\]{0,40}") {
        prop_assert_eq!(expand(&text, 1).unwrap(), [text]);
    }
}
