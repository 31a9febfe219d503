//! Puts overrides (`path=value`), and the values of `[short]`, into the tree of a plan.

use super::hint::suggestion;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Sets the value at `steps` below `table`; missing tables are created.
pub(super) fn set_in_table<'a>(
    table: &mut DeTable<'a>,
    steps: &[&str],
    value: &Spanned<DeValue<'a>>,
    base: usize,
) -> Result<(), String> {
    let (first, rest) = steps.split_first().ok_or("is empty")?;
    let key = Spanned::new(base..base, Cow::Owned((*first).to_owned()));
    if rest.is_empty() {
        table.insert(key, value.clone());
        return Ok(());
    }
    let missing = || Spanned::new(base..base, DeValue::Table(DeTable::default()));
    match table.entry(key).or_insert_with(missing).get_mut() {
        DeValue::Table(inner) => set_in_table(inner, rest, value, base),
        DeValue::Array(items) => set_in_array(items, first, rest, value, base),
        other => Err(format!("`{first}` is of type {}, not a table", other.type_str())),
    }
}

/// Sets the value below the elements of `items` that the next step names: one by its place or `name`, or all of a `kind`.
fn set_in_array<'a>(
    items: &mut DeArray<'a>,
    list: &str,
    steps: &[&str],
    value: &Spanned<DeValue<'a>>,
    base: usize,
) -> Result<(), String> {
    let (which, rest) = steps.split_first().ok_or("is empty")?;
    let label = |item: &Spanned<DeValue<'a>>, key: &str| {
        item.get_ref().as_table().and_then(|table| table.get(key)?.get_ref().as_str().map(str::to_owned))
    };
    let mut meant: Vec<usize> = which.parse().ok().filter(|place| *place < items.len()).into_iter().collect();
    for key in ["name", "kind"] {
        if meant.is_empty() {
            let is_meant = |item: &Spanned<DeValue<'a>>| label(item, key).as_deref() == Some(which);
            meant = (0..items.len()).filter(|place| items.get(*place).is_some_and(is_meant)).collect();
        }
    }
    if meant.is_empty() {
        let labels: Vec<String> =
            items.iter().filter_map(|item| label(item, "name").or_else(|| label(item, "kind"))).collect();
        let known: Vec<&str> = labels.iter().map(String::as_str).collect();
        return Err(format!("no `{which}` in `{list}`{}", suggestion(which, &known)));
    }
    for place in meant {
        match items.get_mut(place).map(Spanned::get_mut) {
            Some(DeValue::Table(table)) if !rest.is_empty() => set_in_table(table, rest, value, base)?,
            _ => {
                return Err(format!(
                    "`{list}.{which}` needs a key below it, for example `{list}.{which}.cpus`"
                ));
            }
        }
    }
    Ok(())
}

/// Every value below a table that is not itself a table, with its path.
pub(super) fn leaves<'a>(
    value: &Spanned<DeValue<'a>>,
    path: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, Spanned<DeValue<'a>>)>,
) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (name, inner) in table.iter() {
                path.push(name.get_ref().to_string());
                leaves(inner, path, found);
                path.pop();
            }
        }
        _ => found.push((path.clone(), value.clone())),
    }
}

/// Moves the places of a value and all that is in it by `base`.
pub(super) fn shift(value: &mut Spanned<DeValue<'_>>, base: usize) {
    let span = value.span();
    let mut inner = std::mem::replace(value.get_mut(), DeValue::Boolean(false));
    match &mut inner {
        DeValue::Array(items) => items.iter_mut().for_each(|item| shift(item, base)),
        DeValue::Table(table) => table.iter_mut().for_each(|(_, item)| shift(item, base)),
        _ => {}
    }
    *value = Spanned::new(span.start + base..span.end + base, inner);
}
