//! The CPU table of a run with a shield: before it, with the shield, and after it.

use crate::pages::cpus::at_moments;
use crate::section::{Depth, Section};
use whylate_core::result::RunResult;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let section = Section::new("shielding", "CPUs").meaning("before the run, with the shield, after the run");
    section.depth(Depth::Detail).with(at_moments(&run.cpu_tables)).unless_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Page;
    use crate::write::Style;
    use whylate_core::CpuId;
    use whylate_core::result::{CpuRow, CpuTableAt, Shielding};

    #[test]
    fn each_moment_has_a_row_for_each_cpu() {
        let at = |at: &str, is_shielded: bool| {
            let shielding = Shielding { processes: Some(is_shielded), ..Shielding::default() };
            let row = |cpu: u32| CpuRow { cpu: CpuId(cpu), online: true, shielding, ..CpuRow::default() };
            CpuTableAt { at: at.to_owned(), cpus: vec![row(0), row(1)] }
        };
        let table = at_moments(&[at("before", false), at("churn+shield", true)]);
        let page = Page { sections: vec![Section::new("shielding", "CPUs").with(table)], ..Page::default() };
        let text = page.terminal(Style::default());
        let shielded = text.lines().filter(|line| line.contains("churn+shield") && line.contains("proc"));
        assert_eq!(shielded.count(), 2, "{text}");
        let open = text.lines().filter(|line| line.contains("before") && !line.contains("proc"));
        assert_eq!(open.count(), 2, "{text}");
    }
}
