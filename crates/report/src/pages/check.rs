//! Findings by theme: one or two lines each, or all details.

use super::host;
use crate::section::{Item, Page, Section, Tone, Verdict};
use crate::sections::warnings;
use whylate_core::result::{CheckResult, Finding, Severity, Theme};

/// The report of `whylate check`; with `details`, each finding has its evidence, its source and all remedies.
pub fn check(check: &CheckResult, details: bool) -> Page {
    let mut machine = host(&check.facts);
    machine.push(format!("target CPUs: {}", check.cpus));
    let theme = |theme: Theme| {
        let findings = check.findings.iter().filter(|finding| finding.theme == theme);
        let items: Vec<Item> = findings.map(|finding| item(finding, details)).collect();
        Section::new("", theme.title()).with(items).unless_empty()
    };
    let mut sections: Vec<Section> = Theme::ALL.into_iter().flat_map(theme).collect();
    sections.extend(warnings::section(&check.warnings));
    let verdict = Some(verdict(check));
    Page { origin: "whylate check".to_owned(), about: vec![machine], sections, verdict, ..Page::default() }
}

fn item(finding: &Finding, details: bool) -> Item {
    let text = match &finding.effect {
        Some(effect) if !details && finding.severity == Severity::Serious => {
            format!("{}: {effect}", finding.text)
        }
        _ => finding.text.clone(),
    };
    Item {
        tone: tone(finding.severity),
        label: finding.severity.name(),
        text: text.into(),
        below: if details { everything(finding) } else { fix(finding).into_iter().collect() },
        ..Item::default()
    }
}

fn fix(finding: &Finding) -> Option<(&'static str, String)> {
    let fix = finding.fix_now.as_deref().or(finding.fix_boot.as_deref());
    let fix = fix.filter(|_| finding.severity <= Severity::Advice)?;
    let treatment = finding.treatment.as_ref().map(|treatment| format!(" (treatment: {treatment})"));
    Some(("fix", format!("{fix}{}", treatment.unwrap_or_default())))
}

fn everything(finding: &Finding) -> Vec<(&'static str, String)> {
    let seen = finding
        .evidence
        .iter()
        .map(|evidence| ("seen", Some(format!("{} = {}", evidence.path, evidence.value))));
    [("id", Some(finding.id.clone())), ("effect", finding.effect.clone())]
        .into_iter()
        .chain(seen)
        .chain([
            ("fix now", finding.fix_now.clone()),
            ("fix at boot", finding.fix_boot.clone()),
            ("treatment", finding.treatment.clone()),
            ("source", finding.source.clone()),
        ])
        .filter_map(|(name, text)| Some((name, text?)))
        .collect()
}

fn verdict(check: &CheckResult) -> Verdict {
    let counts = [Severity::Serious, Severity::Advice, Severity::Info, Severity::Ok]
        .map(|severity| format!("{} {}", check.count(severity), severity.name()));
    let more = if check.findings.is_empty() { "nothing could be read" } else { "more with --verbose" };
    let reason = format!("{} for target {} ({more})", counts.join(", "), crate::words::cpu_list(&check.cpus));
    let (word, tone) = if check.fit { ("FIT", Tone::Good) } else { ("UNFIT", Tone::Bad) };
    Verdict { word, reason, tone }
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Serious => Tone::Bad,
        Severity::Advice => Tone::Warn,
        Severity::Info => Tone::Plain,
        Severity::Ok => Tone::Good,
    }
}
