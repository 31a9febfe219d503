//! Findings by theme: a line or two each, or everything that is known about them.

use super::Style;
use super::page::{Colour, Page, clean};
use whylate_core::result::{CheckResult, Finding, Severity, Theme};

/// Width of the column of severities.
const SEVERITY_WIDTH: usize = 9;

/// The report of `whylate check`; with `details`, each finding has its evidence, its source and all remedies.
pub fn check(check: &CheckResult, details: bool, style: Style) -> String {
    let mut page = Page::new(style);
    let facts = &check.facts;
    let machine = [
        facts.host.clone(),
        facts.kernel.release.clone(),
        facts.processor.model.clone(),
        format!("target CPUs: {}", check.cpus),
    ];
    page.dim_list(&machine.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>());
    for theme in Theme::ALL {
        let findings: Vec<&Finding> =
            check.findings.iter().filter(|finding| finding.theme == theme).collect();
        if findings.is_empty() {
            continue;
        }
        page.heading(theme.title());
        for finding in findings {
            push_finding(&mut page, finding, details);
        }
    }
    page.warnings(&check.warnings);
    page.blank();
    push_summary(&mut page, check);
    page.finish()
}

fn push_finding(page: &mut Page, finding: &Finding, details: bool) {
    let text = match &finding.effect {
        Some(effect) if !details && finding.severity == Severity::Serious => {
            format!("{}: {effect}", finding.text)
        }
        _ => finding.text.clone(),
    };
    page.labelled(finding.severity.name(), &clean(&text), SEVERITY_WIDTH, colour(finding.severity));
    let mut below = |name: &str, text: Option<&str>| {
        if let Some(text) = text {
            page.indented(&format!("{name}: {}", clean(text)), SEVERITY_WIDTH + 2);
        }
    };
    if !details {
        let fix = finding.fix_now.as_deref().or(finding.fix_boot.as_deref());
        let fix = fix.map(|fix| match &finding.treatment {
            Some(treatment) => format!("{fix} (treatment: {treatment})"),
            None => fix.to_owned(),
        });
        if finding.severity <= Severity::Advice {
            below("fix", fix.as_deref());
        }
        return;
    }
    below("id", Some(&finding.id));
    below("effect", finding.effect.as_deref());
    for evidence in &finding.evidence {
        below("seen", Some(&format!("{} = {}", evidence.path, evidence.value)));
    }
    below("fix now", finding.fix_now.as_deref());
    below("fix at boot", finding.fix_boot.as_deref());
    below("treatment", finding.treatment.as_deref());
    below("source", finding.source.as_deref());
}

fn push_summary(page: &mut Page, check: &CheckResult) {
    let counts = [Severity::Serious, Severity::Advice, Severity::Info, Severity::Ok]
        .map(|severity| format!("{} {}", check.count(severity), severity.name()));
    let more = if check.findings.is_empty() { "nothing could be read" } else { "more with --verbose" };
    let reason = format!("{} for target CPUs {} ({more})", counts.join(", "), check.cpus);
    if check.fit {
        page.verdict("FIT", &reason, Colour::Green);
    } else {
        page.verdict("UNFIT", &reason, Colour::Red);
    }
}

fn colour(severity: Severity) -> Colour {
    match severity {
        Severity::Serious => Colour::Red,
        Severity::Advice => Colour::Yellow,
        Severity::Info => Colour::Plain,
        Severity::Ok => Colour::Green,
    }
}
