use super::*;
use std::fs;

#[test]
fn the_unit_goes_on_after_a_boot_and_goes_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = HostRoot::at(folder.path().join("root"));
    let campaign = folder.path().join("it's mine");
    let continuation = Continuation { root: &root, folder: &campaign };
    continuation.install(Path::new("/usr/bin/whylate")).unwrap();
    continuation.install(Path::new("/usr/bin/whylate")).unwrap();
    let wanted = root.path("/etc/systemd/system/multi-user.target.wants/whylate-campaign.service");
    let unit = fs::read_to_string(&wanted).unwrap();
    assert!(unit.contains(&format!("ExecStart=/bin/sh \"{}\"", continuation.script().display())), "{unit}");
    let script = fs::read_to_string(continuation.script()).unwrap();
    assert!(
        script.contains("exec '/usr/bin/whylate' fix --campaign '") && script.contains("--continue"),
        "{script}"
    );
    let parsed = std::process::Command::new("sh").arg("-n").arg(continuation.script()).status().unwrap();
    assert!(parsed.success());
    let other = Continuation { root: &root, folder: folder.path() };
    let error = other.install(Path::new("/usr/bin/whylate")).unwrap_err().to_string();
    assert!(error.contains("another campaign goes on"), "{error}");
    other.remove().unwrap();
    assert!(wanted.exists(), "it is another campaign's");
    continuation.remove().unwrap();
    assert!(fs::symlink_metadata(&wanted).is_err());
    assert_eq!(fs::read_dir(root.path("/etc/systemd/system")).unwrap().count(), 1, "the folder of wants");
    continuation.remove().unwrap();
}

#[test]
fn a_campaign_of_another_form_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [("{}", "missing field"), ("hello", "expected value")] {
        fs::write(folder.path().join("campaign.json"), text).unwrap();
        let error = Campaign::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("campaign.json") && error.contains(expected), "{error}");
    }
    assert!(
        Campaign::read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere/campaign.json")
    );
}
