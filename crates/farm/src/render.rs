//! The files with which an engine runs plans on many machines: templates with the farm's values in them.

use crate::farm_file::{FarmFile, Host};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use whylate_core::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatcher {
    Kubernetes,
    Slurm,
    Ansible,
    Lava,
}

#[derive(Clone, Debug)]
pub struct PlanFile {
    pub plan: Plan,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub path: String,
    pub text: String,
}

impl Rendered {
    pub fn is_program(&self) -> bool {
        self.text.starts_with("#!")
    }
}

struct Job<'a> {
    host: &'a Host,
    plan: &'a PlanFile,
}

impl Job<'_> {
    fn plan_file(&self) -> String {
        plan_file(self.plan)
    }

    /// Identifies the run apart from its time: the same plan on the same machine gives the same word.
    fn run(&self) -> String {
        format!("{}-{}-{}", self.plan.plan.name, self.digest(), self.host.name)
    }

    fn digest(&self) -> String {
        let digest = Sha256::digest(format!("{}\0{}", self.host.name, self.plan.text));
        digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    fn kernel(&self) -> &str {
        self.host.kernel.as_deref().unwrap_or_default()
    }

    /// A name that RFC 1123 permits, of at most 52 characters, the limit of a CronJob's name.
    fn label(&self) -> String {
        const LONGEST: usize = 52;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let plan: String = self.plan.plan.name.chars().map(plain).collect();
        let (digest, host) = (self.digest(), self.host.name.as_str());
        let room = LONGEST - digest.len() - 2;
        // If they are cut, the digest identifies plan and host: the host first, then the plan.
        let plan = &plan[..plan.len().min(room.saturating_sub(host.len()).max(room / 2))];
        let host = &host[..host.len().min(room - plan.len())];
        format!("{plan}-{digest}-{host}").trim_matches('-').to_owned()
    }
}

fn plan_file(plan: &PlanFile) -> String {
    format!("{}.toml", plan.plan.name)
}

/// The files of a directory that runs `plans` on the farm; `jobs` says which of them (by number) runs on which host
/// (by number). The same input gives the same files.
pub fn render(
    farm: &FarmFile,
    plans: &[PlanFile],
    jobs: &[(usize, usize)],
    dispatcher: Dispatcher,
) -> Vec<Rendered> {
    let jobs = jobs
        .iter()
        .filter_map(|(host, plan)| Some(Job { host: farm.hosts.get(*host)?, plan: plans.get(*plan)? }));
    let jobs: Vec<Job<'_>> = jobs.collect();
    let base = match dispatcher {
        Dispatcher::Ansible => "roles/whylate/files/",
        _ => "",
    };
    let mut files =
        vec![file(&format!("{base}job.sh"), fill(include_str!("../templates/job.sh"), &of_farm(farm)))];
    files.push(file(&format!("{base}farm.toml"), farm.text.clone()));
    for plan in plans {
        files.push(file(&format!("{base}{}", plan_file(plan)), plan.text.clone()));
    }
    files.extend(match dispatcher {
        Dispatcher::Kubernetes => kubernetes(farm, plans, &jobs),
        Dispatcher::Slurm => slurm(farm, &jobs),
        Dispatcher::Ansible => ansible(farm, &jobs),
        Dispatcher::Lava => lava(farm, plans, &jobs),
    });
    files
}

fn file(path: &str, text: String) -> Rendered {
    Rendered { path: path.to_owned(), text }
}

type Values = BTreeMap<&'static str, String>;

fn of_farm(farm: &FarmFile) -> Values {
    // One run a day with a schedule, otherwise a single run.
    let slot = if farm.schedule.is_some() { "$(date -u +%Y%m%d)" } else { "1" };
    BTreeMap::from([
        ("FARM", farm.name.clone()),
        ("LAKE", farm.lake.clone()),
        ("PROGRAM", farm.program.clone()),
        ("SLOT", slot.to_owned()),
        ("SCHEDULE", farm.schedule.clone().unwrap_or_else(|| "0 3 * * *".to_owned())),
        ("IMAGE", farm.image.clone().unwrap_or_else(|| "localhost/whylate-farm:latest".to_owned())),
        ("CPUS", farm.cpus.to_string()),
    ])
}

fn of_job(farm: &FarmFile, job: &Job<'_>) -> Values {
    let mut values = of_farm(farm);
    values.extend([
        ("HOST", job.host.name.clone()),
        ("PLAN_NAME", job.plan.plan.name.clone()),
        ("PLAN_FILE", job.plan_file()),
        ("RUN", job.run()),
        ("KERNEL", job.kernel().to_owned()),
        ("JOB", job.label()),
    ]);
    values
}

/// A template with its `@NAMES@` replaced.
fn fill(template: &str, values: &Values) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

/// Any text as a YAML string, in JSON's form.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn indented(text: &str, by: usize) -> String {
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("{}{line}", " ".repeat(by)) };
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Mounts a lake in a folder into a container: the lines below its mounts and its volumes, indented by these columns.
fn folder_of_lake(farm: &FarmFile, mounts: usize, volumes: usize) -> [(&'static str, String); 2] {
    let folder = farm.lake.strip_prefix("file://").unwrap_or(&farm.lake);
    let line = |by: usize, what: &str| match folder.contains("://") {
        true => String::new(),
        false => format!("\n{}- {{name: lake, {what}}}", " ".repeat(by)),
    };
    let path = quoted(folder);
    [
        ("LAKE_MOUNT", line(mounts, &format!("mountPath: {path}"))),
        ("LAKE_VOLUME", line(volumes, &format!("hostPath: {{path: {path}, type: Directory}}"))),
    ]
}

fn kubernetes(farm: &FarmFile, plans: &[PlanFile], jobs: &[Job<'_>]) -> Vec<Rendered> {
    let farm_values = of_farm(farm);
    let job = |job: &Job<'_>| {
        let mut values = of_job(farm, job);
        values.extend(folder_of_lake(farm, 10, 6));
        let spec = fill(include_str!("../templates/kubernetes/job-spec.yaml"), &values);
        let (version, kind, spec) = match &farm.schedule {
            None => ("batch/v1", "Job", indented(&spec, 2)),
            Some(schedule) => {
                let head = format!(
                    "  schedule: \"{schedule}\"\n  concurrencyPolicy: Forbid\n  jobTemplate:\n    spec:\n"
                );
                ("batch/v1", "CronJob", head + &indented(&spec, 6))
            }
        };
        values.extend([("API_VERSION", version.to_owned()), ("KIND", kind.to_owned()), ("JOB_SPEC", spec)]);
        fill(include_str!("../templates/kubernetes/job.yaml"), &values)
    };
    let mut kustomization = "# `kubectl apply -k .`\napiVersion: kustomize.config.k8s.io/v1beta1\n\
        kind: Kustomization\nresources:\n  - jobs.yaml\n"
        .to_owned();
    let mut files = vec![
        file("jobs.yaml", jobs.iter().map(job).collect()),
        file("Containerfile", fill(include_str!("../templates/kubernetes/Containerfile"), &farm_values)),
        file("README.md", fill(include_str!("../templates/kubernetes/README.md"), &farm_values)),
    ];
    if let Some(watch) = &farm.watch {
        let hosts: Vec<String> = farm.hosts.iter().map(|host| quoted(&host.name)).collect();
        let mut values = farm_values;
        values.extend([("WATCH", watch.clone()), ("HOSTS", hosts.join(", "))]);
        values.extend(folder_of_lake(farm, 12, 8));
        files.push(file("watch.yaml", fill(include_str!("../templates/kubernetes/watch.yaml"), &values)));
        kustomization += "  - watch.yaml\n";
    }
    // A job cannot be changed: it must not refer to another map each time that a plan changes.
    kustomization += "generatorOptions:\n  disableNameSuffixHash: true\nconfigMapGenerator:\n  - name: whylate-farm\n    files:\n      - job.sh\n      - farm.toml\n";
    for plan in plans {
        let _ = writeln!(kustomization, "      - {}", plan_file(plan));
    }
    files.push(file("kustomization.yaml", kustomization));
    files
}

fn slurm(farm: &FarmFile, jobs: &[Job<'_>]) -> Vec<Rendered> {
    let submit = |host: &Host| {
        let of_host = jobs.iter().filter(|job| job.host.name == host.name);
        let plans: Vec<String> = of_host.map(|job| format!(" {} {}", job.plan_file(), job.run())).collect();
        let (name, kernel) = (&host.name, host.kernel.as_deref().unwrap_or_default());
        let last = plans.len().checked_sub(1)?;
        let array =
            format!("sbatch --nodelist={name} --array=0-{last}%1 \"$@\" job.sbatch {name} '{kernel}'");
        Some(array + &plans.concat())
    };
    let mut values = of_farm(farm);
    values.insert("SUBMITS", farm.hosts.iter().filter_map(submit).collect::<Vec<_>>().join("\n"));
    vec![
        file("job.sbatch", fill(include_str!("../templates/slurm/job.sbatch"), &values)),
        file("submit.sh", fill(include_str!("../templates/slurm/submit.sh"), &values)),
        file("README.md", fill(include_str!("../templates/slurm/README.md"), &values)),
    ]
}

fn ansible(farm: &FarmFile, jobs: &[Job<'_>]) -> Vec<Rendered> {
    let slot = match farm.schedule {
        Some(_) => "{{ lookup('pipe', 'date -u +%Y%m%d') }}",
        None => "1",
    };
    let mut inventory = format!(
        "# The machines of {}, and what runs on each.\nfarm:\n  vars:\n    whylate_program_here: {}\n    whylate_lake: {}\n    \
         whylate_directory: /var/tmp/whylate-farm\n    whylate_fetched: \"{{{{ playbook_dir }}}}/fetched\"\n    \
         whylate_slot: \"{slot}\"\n  hosts:\n",
        farm.name,
        quoted(&farm.program),
        quoted(&farm.lake)
    );
    for host in &farm.hosts {
        let address = host.address.as_ref().unwrap_or(&host.name);
        let _ = write!(
            inventory,
            "    {}:\n      ansible_host: {}\n      whylate_host: {}\n",
            quoted(&host.name),
            quoted(address),
            quoted(&host.name)
        );
        if let Some(kernel) = &host.kernel {
            let _ = writeln!(inventory, "      whylate_kernel: {}", quoted(kernel));
        }
        inventory += "      whylate_jobs:\n";
        for job in jobs.iter().filter(|job| job.host.name == host.name) {
            let _ = writeln!(
                inventory,
                "        - {{plan: {}, run: {}}}",
                quoted(&job.plan_file()),
                quoted(&job.run())
            );
        }
    }
    let values = of_farm(farm);
    vec![
        file("inventory.yml", inventory),
        file("site.yml", include_str!("../templates/ansible/site.yml").to_owned()),
        file(
            "roles/whylate/tasks/main.yml",
            include_str!("../templates/ansible/roles/whylate/tasks/main.yml").to_owned(),
        ),
        file("README.md", fill(include_str!("../templates/ansible/README.md"), &values)),
    ]
}

fn lava(farm: &FarmFile, plans: &[PlanFile], jobs: &[Job<'_>]) -> Vec<Rendered> {
    let mut files =
        vec![file("README.md", fill(include_str!("../templates/lava/README.md"), &of_farm(farm)))];
    for plan in plans {
        let mut values = of_farm(farm);
        let question = plan.plan.question.clone().unwrap_or_else(|| plan.plan.name.clone());
        values.extend([
            ("PLAN_NAME", plan.plan.name.clone()),
            ("PLAN_FILE", plan_file(plan)),
            ("QUESTION", quoted(&question)),
        ]);
        let definition = fill(include_str!("../templates/lava/definition.yaml"), &values);
        files.push(file(&format!("{}.yaml", plan.plan.name), definition));
    }
    for job in jobs {
        let mut values = of_job(farm, job);
        let device = job.host.labels.get("device_type").unwrap_or(&job.host.name);
        let seconds = job.plan.plan.repeat_duration().0 / 1_000_000_000;
        let repeats = u64::from(job.plan.plan.repeats) * job.plan.plan.cell.len() as u64;
        values.extend([
            ("DEVICE_TYPE", quoted(device)),
            ("DEFINITION", format!("{}.yaml", job.plan.plan.name)),
            // Twice the expected time, and an hour.
            ("HOURS", (1 + (2 * seconds * repeats).div_ceil(3600)).to_string()),
        ]);
        let path = format!("jobs/{}-{}.yaml", job.plan.plan.name, job.host.name);
        files.push(file(&path, fill(include_str!("../templates/lava/job.yaml"), &values)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(dispatcher: Dispatcher, hosts: &[&str], plan: &str, device: &str) -> Vec<Rendered> {
        let mut text = "name = \"rack\"\nlake = \"s3://b/farm\"\n".to_owned();
        for host in hosts {
            let _ = write!(text, "[[host]]\nname = \"{host}\"\naddress = \"a: b\"\n");
            let _ = writeln!(text, "labels = {{ device_type = {} }}", quoted(device));
        }
        let farm = FarmFile::parse("farm.toml", &text).unwrap();
        let plan = PlanFile { plan: Plan::named(plan), text: format!("name = \"{plan}\"\n") };
        let jobs: Vec<(usize, usize)> = (0..hosts.len()).map(|host| (host, 0)).collect();
        render(&farm, &[plan], &jobs, dispatcher)
    }

    fn text_of<'a>(files: &'a [Rendered], path: &str) -> &'a str {
        &files.iter().find(|file| file.path == path).unwrap().text
    }

    #[test]
    fn names_of_jobs_differ_and_are_short_enough() {
        let long = "very-long-name-of-a-board-in-a-rack-of-the-laboratory-of";
        let hosts = [format!("{long}-east"), format!("{long}-west")];
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        for plan in ["quick", "A_plan_with_a_name_that_is_longer_than_what_a_job_may_have"] {
            let files = rendered(Dispatcher::Kubernetes, &hosts, plan, "x");
            let jobs = text_of(&files, "jobs.yaml");
            let mut names: Vec<&str> =
                jobs.lines().filter_map(|line| line.strip_prefix("  name: \"")).collect();
            assert_eq!(names.len(), 2, "{jobs}");
            assert!(names.iter().all(|name| name.len() <= 53), "{names:?}");
            assert!(names.iter().all(|name| name.starts_with(&plan[..1].to_lowercase())), "{names:?}");
            names.dedup();
            assert_eq!(names.len(), 2, "{names:?}");
        }
        let short = rendered(Dispatcher::Kubernetes, &["a"], "quick", "x");
        assert!(text_of(&short, "jobs.yaml").contains("  name: \"quick-"));
    }

    #[test]
    fn texts_of_the_farm_file_are_quoted() {
        let files = rendered(Dispatcher::Ansible, &["007"], "quick", "x");
        let inventory = text_of(&files, "inventory.yml");
        assert!(inventory.contains("    \"007\":\n      ansible_host: \"a: b\"\n"), "{inventory}");
        let files = rendered(Dispatcher::Lava, &["007"], "quick", "1e3");
        let job = text_of(&files, "jobs/quick-007.yaml");
        assert!(job.contains("device_type: \"1e3\"\n"), "{job}");
    }

    #[test]
    fn a_lake_in_a_folder_is_mounted() {
        let jobs = |lake: &str| {
            let text = format!("name = \"rack\"\nlake = \"{lake}\"\n[[host]]\nname = \"a\"\n");
            let farm = FarmFile::parse("farm.toml", &text).unwrap();
            let plan = PlanFile { plan: Plan::named("quick"), text: String::new() };
            text_of(&render(&farm, &[plan], &[(0, 0)], Dispatcher::Kubernetes), "jobs.yaml").to_owned()
        };
        let folder = jobs("file:///srv/lake");
        assert!(folder.contains("\n            - {name: lake, mountPath: \"/srv/lake\"}\n"), "{folder}");
        assert!(folder.contains("\n        - {name: lake, hostPath: {path: \"/srv/lake\""), "{folder}");
        assert!(!jobs("s3://b/farm").contains("name: lake,"));
    }

    #[test]
    fn the_request_reaches_the_lake() {
        let files = rendered(Dispatcher::Ansible, &["a"], "quick", "x");
        let job = text_of(&files, "roles/whylate/files/job.sh");
        assert!(job.contains("push \"$directory\" \"$lake\" \"$@\"\n"), "{job}");
        assert!(text_of(&files, "roles/whylate/files/farm.toml").contains("name = \"a\"\n"));
        let role = text_of(&files, "roles/whylate/tasks/main.yml");
        assert!(
            role.contains("--host \"$BOARD\" ${KERNEL:+--kernel \"$KERNEL\"} --farm \"$FARM\"\n"),
            "{role}"
        );
    }
}
