//! Reads the text of a plan with the place of everything in it, so that each error can say where it is.
//!
//! Overrides (`--set`) are put into the same tree. Their places are behind the end of the text, each in a range of its
//! own, so that an error in an override names the override.

use super::check;
use super::hint::{suggestion, with_suggestion};
use super::overrides::{leaves, set_in_table, shift};
use super::{
    CellPlan, LoadKind, LoadPlan, Matrix, Plan, ProbePlan, TracePlan, TraceWhen, TreatmentKind, TreatmentPlan,
};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

/// The text of a plan and what to call it in errors.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Path of the file, or name of the built-in plan.
    pub name: &'a str,
    pub text: &'a str,
}

/// What is wrong with a plan, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The file and position, or the override.
    pub place: Place,
    /// The key: `probe[0].interval`; empty when the text is not TOML.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the text; line and column count from 1, the column in characters.
    Text {
        /// Path of the file, or name of the built-in plan.
        source: String,
        line: usize,
        column: usize,
    },
    Override(
        /// `path=value`.
        String,
    ),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Text { source, line, column } => write!(f, "{source}:{line}:{column}: ")?,
            Place::Override(text) => write!(f, "--set {text}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlanError {}

/// A parsed plan whose values are not yet checked.
pub(super) struct Document<'a> {
    source: Source<'a>,
    overrides: &'a [String],
    root: DeTable<'a>,
}

/// The keys of a plan that are tables of their own.
const SECTIONS: [&str; 6] = ["probe", "load", "cell", "matrix", "treatment", "trace"];

impl<'a> Document<'a> {
    /// With `is_short` the values of `[short]` are put in before the overrides.
    pub(super) fn parse(
        source: &Source<'a>,
        overrides: &'a [String],
        is_short: bool,
    ) -> Result<Self, PlanError> {
        let mut document = Self { source: *source, overrides, root: DeTable::default() };
        document.root = DeTable::parse(source.text)
            .map_err(|error| document.error(error.span().unwrap_or(0..0), String::new(), error.message()))?
            .into_inner();
        document.shorten(is_short)?;
        for (index, text) in overrides.iter().enumerate() {
            document.apply(index, text)?;
        }
        Ok(document)
    }

    /// Replaces keys by those of `[short]`, for the short form.
    fn shorten(&mut self, is_wanted: bool) -> Result<(), PlanError> {
        let Some(short) = self.root.get("short").filter(|_| is_wanted) else {
            let message = "this plan has no short form; add a section `[short]` with the values that change";
            return if is_wanted { Err(self.error(0..0, "short".to_owned(), message)) } else { Ok(()) };
        };
        let mut values = Vec::new();
        leaves(short, &mut Vec::new(), &mut values);
        for (path, value) in values {
            let span = value.span();
            let steps: Vec<&str> = path.iter().map(String::as_str).collect();
            set_in_table(&mut self.root, &steps, &value, span.start)
                .map_err(|message| self.error(span, format!("short.{}", path.join(".")), message))?;
        }
        Ok(())
    }

    /// The first byte behind the text that stands for override `index`.
    fn override_base(&self, index: usize) -> usize {
        let before: usize = self.overrides[..index].iter().map(|text| text.len() + 1).sum();
        self.source.text.len() + 1 + before
    }

    fn place(&self, span: &Range<usize>) -> Place {
        for (index, text) in self.overrides.iter().enumerate().rev() {
            if span.start >= self.override_base(index) {
                return Place::Override(text.clone());
            }
        }
        let before = self.source.text.get(..span.start).unwrap_or(self.source.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::Text {
            source: self.source.name.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn error(&self, span: Range<usize>, key: String, message: impl Into<String>) -> PlanError {
        let message: String = message.into();
        PlanError { place: self.place(&span), key, message: message.replace('\n', "; ") }
    }

    /// An error at the value of `key` (`cell[0].loads[1]`), or at the nearest thing around it that exists.
    pub(super) fn error_at(&self, key: &str, message: impl Into<String>) -> PlanError {
        let mut span = 0..0;
        let mut table = Some(&self.root);
        let mut value: Option<&Spanned<DeValue<'a>>> = None;
        for step in steps(key) {
            let next = match step {
                Step::Key(name) => table.and_then(|table| table.get(name)),
                Step::Index(index) => {
                    value.and_then(|value| value.get_ref().as_array()).and_then(|array| array.get(index))
                }
            };
            let Some(found) = next else { break };
            span = found.span();
            table = found.get_ref().as_table();
            value = Some(found);
        }
        self.error(span, key.to_owned(), message)
    }

    /// Puts `path=value` into the tree.
    fn apply(&mut self, index: usize, text: &'a str) -> Result<(), PlanError> {
        let base = self.override_base(index);
        let fail = |key: &str, message: String| PlanError {
            place: Place::Override(text.to_owned()),
            key: key.to_owned(),
            message,
        };
        let Some((path, value_text)) = text.split_once('=') else {
            return Err(fail("", "has no `=`; write for example `--set duration=10s`".to_owned()));
        };
        let (path, value_text) = (path.trim(), value_text.trim());
        let mut value = DeValue::parse(value_text).unwrap_or_else(|_| {
            Spanned::new(0..value_text.len(), DeValue::String(Cow::Borrowed(value_text)))
        });
        shift(&mut value, base);
        let steps: Vec<&str> = path.split('.').map(str::trim).collect();
        if steps.iter().any(|step| step.is_empty()) {
            return Err(fail("", "has no key; write for example `--set duration=10s`".to_owned()));
        }
        set_in_table(&mut self.root, &steps, &value, base).map_err(|message| fail(path, message))
    }

    /// Turns the tree into a checked plan.
    pub(super) fn decode(self) -> Result<Plan, PlanError> {
        let mut root = self.root.clone();
        let mut sections = SECTIONS.map(|name| root.remove(name));
        let [probes, loads, cells, matrix, treatments, trace] = &mut sections;
        // `Plan` requires this key; its sections are decoded one by one below, for better errors.
        root.insert(
            Spanned::new(0..0, "probe".into()),
            Spanned::new(0..0, DeValue::Array(DeArray::default())),
        );
        let root = Spanned::new(0..0, DeValue::Table(root));
        let plan: Plan = self.value(root, "", &["matrix"])?;
        let probe = self.list(probes.take(), "probe", |value, key| {
            let (kind, value) = self.take_kind(value, key, &ProbePlan::KINDS)?;
            ProbePlan::decode(&self, &kind, value, key)
        })?;
        let load = self.list(loads.take(), "load", |value, key| {
            let (kind, name, value) = self.take_kind_and_name(value, key, &LoadKind::KINDS)?;
            Ok(LoadPlan { name, kind: LoadKind::decode(&self, &kind, value, key)? })
        })?;
        let treatment = self.list(treatments.take(), "treatment", |value, key| {
            let (kind, name, value) = self.take_kind_and_name(value, key, &TreatmentKind::KINDS)?;
            let (optional, value) = self.take_optional(value, key)?;
            Ok(TreatmentPlan { name, optional, kind: TreatmentKind::decode(&self, &kind, value, key)? })
        })?;
        let cell = self.cells(cells.take(), matrix.take(), &load)?;
        let trace = trace.take().map(|value| self.trace(value)).transpose()?.flatten();
        let plan = Plan { trace, probe, load, treatment, cell, ..plan };
        check::check(&plan, &self)?;
        Ok(plan)
    }

    /// The cells that are listed, or those of the matrix. Without either: an idle one, and one for each load.
    fn cells(
        &self,
        cells: Option<Spanned<DeValue<'a>>>,
        matrix: Option<Spanned<DeValue<'a>>>,
        loads: &[LoadPlan],
    ) -> Result<Vec<CellPlan>, PlanError> {
        let mut cell: Vec<CellPlan> = self.list(cells, "cell", |value, key| self.value(value, key, &[]))?;
        if let Some(matrix) = matrix {
            if !cell.is_empty() {
                let message = "a plan has either [[cell]] or [matrix], not both";
                return Err(self.error(matrix.span(), "matrix".to_owned(), message));
            }
            cell = self.value::<Matrix>(matrix, "matrix", &[])?.cells();
        }
        if cell.is_empty() {
            cell.push(CellPlan::default());
            let alone = |load: &LoadPlan| CellPlan { loads: vec![load.name.clone()], ..CellPlan::default() };
            cell.extend(loads.iter().map(alone));
        }
        Ok(cell)
    }

    /// Decodes `trace = "on-spike"` or the section `[trace]`; `None` for `off`.
    fn trace(&self, value: Spanned<DeValue<'a>>) -> Result<Option<TracePlan>, PlanError> {
        let plan: TracePlan = match value.get_ref() {
            DeValue::Table(_) => self.value(value, "trace", &[])?,
            _ => TracePlan { when: self.value(value, "trace", &[])?, ..TracePlan::default() },
        };
        Ok((plan.when != TraceWhen::Off).then_some(plan))
    }

    fn list<T>(
        &self,
        value: Option<Spanned<DeValue<'a>>>,
        key: &str,
        decode: impl Fn(Spanned<DeValue<'a>>, &str) -> Result<T, PlanError>,
    ) -> Result<Vec<T>, PlanError> {
        let Some(value) = value else { return Ok(Vec::new()) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| decode(item, &format!("{key}[{index}]")))
                .collect(),
            other => {
                let message = format!("is of type {}; write each as a section `[[{key}]]`", other.type_str());
                Err(self.error(span, key.to_owned(), message))
            }
        }
    }

    /// Takes the keys `kind` and `name` out of a table; the kind is one of `kinds`.
    fn take_kind_and_name(
        &self,
        value: Spanned<DeValue<'a>>,
        key: &str,
        kinds: &[&str],
    ) -> Result<(String, String, Spanned<DeValue<'a>>), PlanError> {
        let (kind, mut value) = self.take_kind(value, key, kinds)?;
        let span = value.span();
        let name = match value.get_mut() {
            DeValue::Table(table) => table.remove("name"),
            _ => None,
        };
        let Some(name) = name else {
            return Err(self.error(
                span,
                key.to_owned(),
                "has no `name`; add a name, so that cells can list it",
            ));
        };
        Ok((kind, self.value(name, &format!("{key}.name"), &[])?, value))
    }

    /// Takes the key `optional` out of the table of a treatment.
    fn take_optional(
        &self,
        mut value: Spanned<DeValue<'a>>,
        key: &str,
    ) -> Result<(bool, Spanned<DeValue<'a>>), PlanError> {
        let optional = match value.get_mut() {
            DeValue::Table(table) => table.remove("optional"),
            _ => None,
        };
        let decode = |optional| self.value(optional, &format!("{key}.optional"), &[]);
        Ok((optional.map(decode).transpose()?.unwrap_or_default(), value))
    }

    /// Takes the key `kind` out of a table and checks that it is one of `kinds`.
    fn take_kind(
        &self,
        mut value: Spanned<DeValue<'a>>,
        key: &str,
        kinds: &[&str],
    ) -> Result<(String, Spanned<DeValue<'a>>), PlanError> {
        let span = value.span();
        let kind = match value.get_mut() {
            DeValue::Table(table) => table.remove("kind"),
            other => {
                let message = format!("is of type {}, not a table", other.type_str());
                return Err(self.error(span, key.to_owned(), message));
            }
        };
        let Some(kind) = kind else {
            let message = format!("has no `kind`; the kinds are {}", kinds.join(", "));
            return Err(self.error(span, key.to_owned(), message));
        };
        match kind.get_ref().as_str() {
            Some(name) if kinds.contains(&name) => Ok((name.to_owned(), value)),
            Some(name) => Err(self.unknown_kind(name, kind.span(), key, kinds)),
            None => {
                let message = format!("is {}; the kinds are {}", kind.get_ref().type_str(), kinds.join(", "));
                Err(self.error(kind.span(), format!("{key}.kind"), message))
            }
        }
    }

    /// `span` is the place of the kind.
    pub(super) fn unknown_kind(
        &self,
        name: &str,
        span: Range<usize>,
        key: &str,
        kinds: &[&str],
    ) -> PlanError {
        let message = format!("unknown kind `{name}`{}", suggestion(name, kinds));
        self.error(span, format!("{key}.kind"), message)
    }

    /// Decodes one value. `more_keys` are keys of the table that were taken out before.
    pub(super) fn value<T: DeserializeOwned>(
        &self,
        value: Spanned<DeValue<'a>>,
        key: &str,
        more_keys: &[&str],
    ) -> Result<T, PlanError> {
        let places = value.clone();
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| {
            let span = error.span().unwrap_or_else(|| places.span());
            let key = key_of(&places, &span, key).unwrap_or_else(|| key.to_owned());
            self.error(span, key, with_suggestion(error.message(), more_keys))
        })
    }
}

enum Step<'k> {
    Key(&'k str),
    Index(usize),
}

/// Splits `cell[0].loads[1]` into its steps.
fn steps(key: &str) -> impl Iterator<Item = Step<'_>> {
    key.split(['.', '[']).filter(|part| !part.is_empty()).map(|part| match part.strip_suffix(']') {
        Some(index) => index.parse().map_or(Step::Key(part), Step::Index),
        None => Step::Key(part),
    })
}

/// The key of the innermost value below `value` whose place holds `span`; `None` when there is none.
///
/// Every table is searched, because the place of a `[section]` is its header alone.
fn key_of(value: &Spanned<DeValue<'_>>, span: &Range<usize>, key: &str) -> Option<String> {
    let holds = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    let inside = match value.get_ref() {
        DeValue::Table(table) => table.iter().find_map(|(name, inner)| {
            let separator = if key.is_empty() { "" } else { "." };
            let inner_key = format!("{key}{separator}{}", name.get_ref());
            if holds(name.span()) { Some(inner_key) } else { key_of(inner, span, &inner_key) }
        }),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, inner)| key_of(inner, span, &format!("{key}[{index}]"))),
        _ => None,
    };
    inside.or_else(|| holds(value.span()).then(|| key.to_owned()))
}
