//! Suggestions for unknown words.

/// Turns the decoder's "unknown field" into a sentence that says what would be right.
pub(super) fn with_suggestion(message: &str, more_keys: &[&str]) -> String {
    for (prefix, noun) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((name, rest)) = message.strip_prefix(prefix).and_then(|rest| rest.split_once('`')) else {
            continue;
        };
        let known = rest.split('`').skip(1).step_by(2);
        let more_keys = if noun == "key" { more_keys } else { &[] };
        // A probe has no `name`, which other sections have.
        let known: Vec<&str> =
            known.chain(more_keys.iter().copied()).filter(|known| *known != name).collect();
        return format!("unknown {noun} `{name}`{}", suggestion(name, &known));
    }
    match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        Some(name) => format!("has no `{name}`, which is required"),
        None => message.to_owned(),
    }
}

/// `; did you mean …` or `; choose from …`.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((similarity, candidate)) if similarity >= 0.8 => format!("; did you mean `{candidate}`?"),
        _ if known.is_empty() => "; none is defined".to_owned(),
        _ => format!("; choose from {}", known.join(", ")),
    }
}
