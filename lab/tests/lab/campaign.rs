//! A campaign of `whylate fix` through a real boot loader: the guest reboots for each repeat, and GRUB boots the entry
//! that `packaging/boot/grub.sh` asked for. What was asked for is compared with what was booted; latencies are not
//! judged.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};

/// One boot: the repeat before it, GRUB, which reads the kernel through the firmware, and Linux.
const BOOT: Duration = Duration::from_secs(600);
const BOOTS_MAX: usize = 80;
/// How long it goes on, unless the variable says it: a boot takes 40 s to 4 min, depending on the host.
const BUDGET: &str = "8m";
const BUDGET_VARIABLE: &str = "WHYLATE_CAMPAIGN_BUDGET";

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = |kernel| Machine::new(Profile::Threads, kernel).with(&[Device::Grub]);
    let kernels = suite::kernels(&[Kernel::RealTime]).into_iter();
    kernels.map(|kernel| LabTest::new("campaign_reboots_through_grub", machine(kernel), campaign)).collect()
}

/// How each boot begins, and what it records of itself.
const BOOTED: &str = "mkdir -p /boot\nmountpoint -q /boot || mount \"$(findfs LABEL=whylate-boot)\" /boot || exit 10\n\
    cat /proc/cmdline >>/var/lib/boots\n";

/// A guest has no systemd: `systemctl` only reboots, and `grub-editenv` is that of GRUB's packages.
const PROGRAMS: &str = r#"
cat >/usr/local/sbin/systemctl <<'END'
#!/bin/sh
[ "$1" = reboot ] || exit 0
sync
echo u >/proc/sysrq-trigger
sleep 1
echo b >/proc/sysrq-trigger
sleep 600
END
cat >/usr/local/sbin/grub-editenv <<'END'
#!/bin/sh
exec /lab/grub/ld-linux-x86-64.so.2 --library-path /lab/grub /lab/grub/grub-editenv "$@"
END
chmod 755 /usr/local/sbin/systemctl /lab/grub/* /usr/local/sbin/grub-editenv
grub-editenv /boot/grub/grubenv list >/dev/null || exit 11
cp -r /boot/grub /root/grub-before
cat >/root/plan.toml <<'END'
name = "boots"
duration = "1s"
settle = "1ms"
warmup = "1ms"
noise_floor = "0s"
[target]
cpus = "1"
[[probe]]
kind = "timer"
interval = "20ms"
END
sync
"#;

/// As systemd does if the unit exists; otherwise it is over.
const GO_ON: &str = r#"
unit=/etc/systemd/system/whylate-campaign.service
[ -e "$unit" ] || { echo over; exit 0; }
eval "$(sed -n 's/^ExecStart=//p' "$unit")"
"#;

/// The files that exist when the campaign is over.
const OVER: &str = r#"
# GRUB itself leaves `next_entry=`, without a value.
diff -r -x grubenv /root/grub-before /boot/grub || exit 20
grub-editenv /boot/grub/grubenv list | grep -v '^next_entry=$' && exit 22
find /etc/systemd/system -name 'whylate*' | grep . && exit 21
cp /var/lib/boots /root/campaign/search/fix.jsonl "$OUT"
whylate fix --show /root/campaign/search --json >$OUT/result.json
true
"#;

fn campaign(guest: &mut Guest) -> Result<(), LabError> {
    let budget = std::env::var(BUDGET_VARIABLE).unwrap_or_else(|_| BUDGET.to_owned());
    let begin = format!(
        "{BOOTED}{PROGRAMS}whylate fix /root/plan.toml --goal 'timer p99' --campaign /root/campaign \
         --boot isolcpus=1 --boot 'nohz_full=1 rcu_nocbs=1' --yes all --budget {budget} --seed 1 -q"
    );
    let mut script = begin;
    let mut boots = 1;
    loop {
        match guest.run_or_reboot(&script, BOOT)? {
            None => boots += 1,
            Some(output) if output.status == 0 && output.stdout.trim() == "over" => break,
            Some(output) => panic!("boot {boots}: {}: {}{}", output.status, output.stdout, output.stderr),
        }
        assert!(boots < BOOTS_MAX, "it is not over after {boots} boots");
        script = format!("{BOOTED}{GO_ON}");
    }
    let output = guest.run(OVER)?;
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
    let result = output.json("result.json")?;
    assert_eq!(
        (&result["state"], &result["restored"]),
        (&Value::from("complete"), &Value::from(true)),
        "{result:#}"
    );
    let text = |name: &str| std::fs::read_to_string(output.files.join(name)).unwrap();
    let lines = text("boots");
    let lines: Vec<&str> = lines.lines().collect();
    let steps: Vec<Value> =
        text("fix.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!steps.is_empty(), "nothing was measured");
    assert_eq!(
        lines.len(),
        steps.len() + 2,
        "a boot for each repeat, the first one, and the default one at the end"
    );
    assert_eq!(lines[0], lines[lines.len() - 1], "the default entry is as before");
    for (number, (step, line)) in steps.iter().zip(&lines[1..]).enumerate() {
        assert!(step.get("error").is_none(), "{step}");
        let treatments: Vec<&str> =
            step["treatments"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        let mut expected = lines[0].to_owned();
        for word in treatments.join(" ").split_whitespace() {
            expected.push_str(&format!(" {word}"));
        }
        expected.push_str(&format!(" whylate.boot={number}"));
        assert_eq!(*line, expected, "{step}");
    }
    // The first repeats are one of each treatment.
    for word in ["isolcpus=1", "rcu_nocbs=1"] {
        let is_asked = lines.iter().any(|line| line.split(' ').any(|it| it == word));
        assert!(is_asked || steps.len() < 2, "{word} was not booted: {lines:?}");
    }
    Ok(())
}
