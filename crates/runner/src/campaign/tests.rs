use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use whylate_core::plan::{Plan, Share, Source};
use whylate_core::result::FixMode;
use whylate_testing::says;

const PLAN: &str = "name = \"short\"\n[[probe]]\nkind = \"timer\"\n";

/// Writes a program, in another process: a child that another test is just starting could hold it open for writing.
fn program(path: &Path, text: &str) {
    let write = ["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#];
    let written = std::process::Command::new("sh").args(write).arg(path).arg(text).status().unwrap();
    assert!(written.success());
}

/// A machine of files, with a script that notes how it was called.
struct Place {
    folder: tempfile::TempDir,
    root: HostRoot,
    script: PathBuf,
}

impl Place {
    fn new(forgets: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("boot");
        let refuses = if forgets { "" } else { "[ $1 = forget ] && exit 1\n" };
        program(&script, &format!("#!/bin/sh\necho $1 >>\"${{0%/*}}/said\"\n{refuses}exit 0\n"));
        Self { root: HostRoot::at(folder.path().join("root")), script, folder }
    }

    /// Two folders that do not exist.
    fn campaign(&self) -> PathBuf {
        self.folder.path().join("campaigns/first")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    fn name(&self) -> LoaderName {
        self.script.display().to_string().parse().unwrap()
    }

    fn registered(&self) -> Campaign {
        let registration = FixRegistration {
            mode: FixMode::Search,
            goal: "timer p99".parse().unwrap(),
            margin: Share(0.05),
            alpha: 0.05,
            seed: 7,
            budget: Nanos::from_secs(1),
            cell: None,
            causes: Vec::new(),
            arms: Vec::new(),
            left_out: Vec::new(),
            yes: Vec::new(),
            never: Vec::new(),
            keeps_goal: true,
            first: 0,
            begun: false,
        };
        let plan = Plan::parse(&Source { name: "plan.toml", text: PLAN }, &[]).unwrap();
        Campaign::new(plan, registration, self.name(), ("6.1.0".to_owned(), "ro".to_owned()))
    }

    fn install(&self) -> Result<(), CampaignError> {
        let loader = ways(&self.name(), &self.root);
        let outside = Outside { root: &self.root, folder: &self.campaign(), loader: loader.as_ref() };
        outside.install(&self.registered(), &BTreeSet::new(), Path::new("/usr/bin/whylate"))
    }

    fn remove(&self) -> Result<(), CampaignError> {
        let loader = ways(&self.name(), &self.root);
        let folder = self.campaign();
        let campaign = Campaign::read(&folder).unwrap();
        Outside { root: &self.root, folder: &folder, loader: loader.as_ref() }.remove(campaign)
    }

    fn has_unit(&self) -> bool {
        self.root.exists("/etc/systemd/system/whylate-campaign.service")
    }
}

#[test]
fn a_script_that_cannot_be_run_is_refused_before_anything_is_written() {
    let place = Place::new(true);
    fs::set_permissions(&place.script, fs::Permissions::from_mode(0o644)).unwrap();
    let error = place.install().unwrap_err().to_string();
    assert!(says("not-executable-chmod-x", &error), "{error}");
    fs::remove_file(&place.script).unwrap();
    let error = place.install().unwrap_err().to_string();
    assert!(says("there-no-such-file", &error), "{error}");
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_start_that_fails_leaves_nothing_and_says_why_it_failed() {
    let place = Place::new(false);
    // The folder of the units is not a folder.
    fs::create_dir_all(place.root.path("/etc/systemd")).unwrap();
    fs::write(place.root.path("/etc/systemd/system"), "").unwrap();
    let error = place.install().unwrap_err();
    assert!(matches!(error, CampaignError::File { what: "write", .. }), "{error}");
    assert!(!place.campaign().parent().unwrap().exists());
    assert_eq!(place.said(), "check\n", "it has nothing to forget");
}

#[test]
fn the_unit_goes_though_the_script_cannot_forget() {
    let place = Place::new(false);
    place.install().unwrap();
    assert!(place.has_unit());
    let asked = AskedBoot {
        step: 0,
        words: Vec::new(),
        kernel: "6.1.0".to_owned(),
        from_boot: "boot-0".to_owned(),
        at_s: 0,
        told: true,
    };
    let mut campaign = place.registered();
    campaign.asked = Some(asked);
    campaign.write(&place.campaign()).unwrap();
    for _ in 0..2 {
        let error = place.remove().unwrap_err();
        assert!(crate::is_not_restored(&error) && error.to_string().contains("forget` failed"), "{error}");
        assert!(!place.has_unit());
        assert!(!Campaign::read(&place.campaign()).unwrap().removed);
    }
    assert_eq!(place.said(), "check\nforget\nforget\n");
    program(&place.script, "#!/bin/sh\n");
    place.remove().unwrap();
    assert!(Campaign::read(&place.campaign()).unwrap().removed);
}

#[test]
fn the_search_of_a_campaign_is_known_as_such() {
    let place = Place::new(true);
    place.install().unwrap();
    let search = Campaign::search(&place.campaign());
    fs::create_dir(&search).unwrap();
    let folder = fs::canonicalize(place.campaign()).unwrap();
    assert_eq!(Campaign::of_search(&search), Some(folder));
    assert_eq!(Campaign::of_search(&place.campaign()), None);
    place.remove().unwrap();
    assert_eq!(place.said(), "check\n", "no boot was asked for");
}

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
    assert!(says("exec-usr-bin-whylate", &script) && script.contains("--continue"), "{script}");
    let parsed = std::process::Command::new("sh").arg("-n").arg(continuation.script()).status().unwrap();
    assert!(parsed.success());
    let other = Continuation { root: &root, folder: folder.path() };
    let error = other.install(Path::new("/usr/bin/whylate")).unwrap_err().to_string();
    assert!(error.contains("continues after the next boot"), "{error}");
    let how = format!("whylate fix --campaign {} --remove", campaign.display());
    assert!(error.contains(&how), "{error}");
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
