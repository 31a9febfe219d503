//! `whylate bisect`: its exit codes are those that `git bisect run` expects.

use crate::json::validate;
use crate::tool::{alone, folder, text, whylate, write};
use whylate_testing::says;

/// A pass through a small and a large working set takes times that no noise can confuse.
fn plan(working_set: &str) -> String {
    format!(
        "name = \"chase\"\nduration = \"40ms\"\nsettle = \"1ms\"\nwarmup = \"1ms\"\nnoise_floor = \"0s\"\nrepeats = 8\n\
         primary = \"access p50\"\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"access\"\nworking_set = \"{working_set}\"\n\
         interval = \"1ms\"\n"
    )
}

#[test]
fn a_run_is_like_good_or_like_bad_ones() {
    let folder = folder();
    let _alone = alone();
    let made = |name: &str, working_set: &str| {
        let plan = write(&folder, &format!("{name}.toml"), &plan(working_set));
        let path = folder.path().join(name);
        let said = whylate(&["run", &plan, "-o", text(&path), "--quiet"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        text(&path).to_owned()
    };
    let (good, bad) = (made("good", "16KiB"), made("bad", "16MiB"));
    let bisect = |run: &str| whylate(&["bisect", run, "--good", &good, "--bad", &bad, "--json"]);
    for (run, code, outcome) in [(&good, 0, "good"), (&bad, 1, "bad")] {
        let said = bisect(run);
        assert_eq!(said.code, Some(code), "{said:?}");
        let document = said.document();
        validate("bisect", &document);
        assert_eq!((&document["outcome"], &document["run"]["repeats"]), (&outcome.into(), &8.into()));
    }
    // Eight repeats are too few for one wrong answer in ten thousand.
    let sure = whylate(&["bisect", &bad, "--good", &good, "--bad", &bad, "--error", "0.01%"]);
    assert!(sure.code == Some(125) && says("cannot-tell-repeats", &sure.stdout), "{sure:?}");
    // A commit without a run is skipped; runs that cannot judge stop the bisection.
    let missing = bisect("/nowhere");
    assert!(missing.code == Some(125) && missing.document()["outcome"] == "cannot_tell", "{missing:?}");
    let swapped = whylate(&["bisect", &good, "--good", &bad, "--bad", &good]);
    assert!(swapped.code == Some(128) && says("not-worse-than-good", &swapped.stderr), "{swapped:?}");
    // A run counts once, even if it is named several times.
    let twice = format!("{good},{good}");
    let repeated = whylate(&["bisect", &bad, "--good", &twice, "--bad", &bad]);
    assert!(repeated.code == Some(128) && repeated.stderr.contains("are the same run"), "{repeated:?}");
    let repeated = whylate(&["compare", &twice, &format!("{bad},{bad}")]);
    assert!(repeated.error().contains("are the same run"), "{repeated:?}");
    let unknown = whylate(&["bisect", &good, "--good", "/nowhere", "--bad", &bad]);
    assert_eq!(unknown.code, Some(128), "{unknown:?}");
    assert_eq!(whylate(&["bisect", &good, "--god", &good]).code, Some(128));
}
