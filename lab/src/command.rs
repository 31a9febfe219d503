//! The subcommands: build, run, shell, tools, list, test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use whylate_lab::{Architecture, Cache, Device, Image, Kernel, Lab, LabError, Machine, Profile};

const USAGE: &str = "\
usage: cargo xtask lab COMMAND

  build [IMAGE…] [KERNEL…]   builds the kernels, plant.ko and the root file systems (without IMAGE:
                             base and graphics) into the cache; rt-5.10 and arm64-rt-new are built
                             only if you name them
  run [MACHINE…] -- SCRIPT…  boots a machine and runs a shell script in this machine
  shell [MACHINE…]           boots a machine and runs the commands that you type, one per line
  tools                      installs missing programs that the lab needs on the host (as root)
  list                       lists the cache, and the words that can describe a MACHINE
  corpus [WORD…]             records the traces with planted causes (fixtures/traces/planted) again:
                             all, or those whose `PROFILE KERNEL/CAUSE/RECORDING` contains a WORD
  test [WORD…] [--all-kernels|--brief]
                             builds the lab and runs its tests
                             WORD           a kernel, or a part of the names of the tests to run
                             --all-kernels  runs each test on all kernels
                             --brief        runs fewer tests; those that hardly depend on
                                            preemption run only on the real-time kernels
                             Without a kernel or --all-kernels, each test chooses its kernels.

MACHINE is a profile, a kernel, an image or a device; several words describe one machine.
The cache is $WHYLATE_LAB_CACHE; default: whylate/lab in the user's cache folder.
Exit status 69 means that the lab is not available on this machine.";
/// How long a command typed into the shell may take.
const SHELL_LIMIT: Duration = Duration::from_secs(3600);

pub(crate) fn run(words: &[&str]) -> Result<ExitCode, LabError> {
    match words {
        ["build", images @ ..] => build(images),
        ["run", rest @ ..] => match rest.iter().position(|word| *word == "--") {
            Some(end) => run_script(&machine(&rest[..end])?, &rest[end + 1..].join(" ")),
            None => Err(usage("`run` needs a script after `--`")),
        },
        ["shell", rest @ ..] => shell(&machine(rest)?),
        ["tools"] => whylate_lab::install_tools(&Cache::of_user()?).map(|()| ExitCode::SUCCESS),
        ["list"] => list(),
        ["test", names @ ..] => test(names),
        ["corpus", names @ ..] => corpus(names),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => Err(usage("the command is missing")),
        [other, ..] => Err(usage(&format!("there is no command `{other}`"))),
    }
}

fn usage(what: &str) -> LabError {
    LabError::Form { what: "the command line", text: format!("{what}\n{USAGE}") }
}

fn build(names: &[&str]) -> Result<ExitCode, LabError> {
    let (mut images, mut kernels) = (Vec::new(), Vec::new());
    for name in names {
        match (Image::named(name), Kernel::named(name)) {
            (Some(image), _) => images.push(image),
            (None, Some(kernel)) => kernels.push(kernel),
            (None, None) => {
                return Err(usage(&format!(
                    "there is no image or kernel `{name}`; `cargo xtask lab list` lists them"
                )));
            }
        }
    }
    if images.is_empty() {
        images = vec![Image::Base, Image::Graphics];
    }
    let started = Instant::now();
    let cache = Cache::of_user()?;
    whylate_lab::build(&cache, &images, &kernels, &|text| eprintln!("lab: {text}"))?;
    eprintln!(
        "lab: the cache {} is complete after {:.1} s",
        cache.root().display(),
        started.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

/// The machine that words describe: each is the name of a profile, a kernel, an image or a device.
fn machine(words: &[&str]) -> Result<Machine, LabError> {
    let mut machine = Machine::new(Profile::Threads, Kernel::RealTime);
    for word in words {
        if let Some(profile) = Profile::named(word) {
            machine.profile = profile;
        } else if let Some(kernel) = Kernel::named(word) {
            machine.kernel = kernel;
        } else if let Some(image) = Image::named(word) {
            machine = machine.image(image);
        } else if let Some(device) = Device::named(word) {
            machine = machine.with(&[device]);
        } else {
            return Err(usage(&format!(
                "there is no profile, kernel, image or device `{word}`; `cargo xtask lab list` lists them"
            )));
        }
    }
    Ok(machine)
}

/// A lab with the program built for guests, when it has been built.
fn lab() -> Result<Lab, LabError> {
    let mut binaries = BTreeMap::new();
    for architecture in Architecture::ALL {
        binaries.extend(binary(architecture).filter(|path| path.is_file()).map(|path| (architecture, path)));
    }
    if binaries.is_empty() {
        eprintln!("lab: the guest has no whylate program; `cargo xtask lab test` builds one");
    }
    Ok(Lab::new(Cache::of_user()?, binaries))
}

/// The program for guests: the one that the environment names, or the one that was built in the same folder as this
/// program.
fn binary(architecture: Architecture) -> Option<PathBuf> {
    let named = std::env::var_os(architecture.binary_variable()).map(PathBuf::from);
    named.or_else(|| results().map(|target| target.join(architecture.target()).join("dist/whylate")))
}

/// The folder of the packages that `cargo xtask package` makes, if it has run.
fn packages() -> Option<PathBuf> {
    results().map(|target| target.join("package")).filter(|folder| folder.join("SHA256SUMS").is_file())
}

/// The folder of build results in which this program was built.
fn results() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().nth(2).map(PathBuf::from)
}

fn run_script(machine: &Machine, script: &str) -> Result<ExitCode, LabError> {
    let started = Instant::now();
    let mut guest = lab()?.boot(machine)?;
    eprintln!(
        "lab: booted {} with Linux {} in {:.1} s",
        machine.label(),
        guest.kernel_version(),
        started.elapsed().as_secs_f64()
    );
    let output = guest.start(script)?.wait(SHELL_LIMIT)?;
    print!("{}", output.stdout);
    eprint!("{}", output.stderr);
    Ok(ExitCode::from(output.status as u8))
}

fn shell(machine: &Machine) -> Result<ExitCode, LabError> {
    let mut guest = lab()?.boot(machine)?;
    eprintln!(
        "lab: booted {} with Linux {}; Ctrl-D ends the machine",
        machine.label(),
        guest.kernel_version()
    );
    eprintln!("lab: the guest's folder /lab is {} on this host", guest.share().display());
    let mut line = String::new();
    loop {
        eprint!("lab# ");
        // If a prompt cannot be shown, the shell goes on.
        let _ = std::io::stderr().flush();
        line.clear();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return Ok(ExitCode::SUCCESS),
            Ok(_) => {}
        }
        let output = guest.start(&line)?.wait(SHELL_LIMIT)?;
        print!("{}", output.stdout);
        eprint!("{}", output.stderr);
        if output.status != 0 {
            eprintln!("lab: exit status {}", output.status);
        }
    }
}

fn list() -> Result<ExitCode, LabError> {
    let cache = Cache::of_user()?;
    println!("cache    {}", cache.root().display());
    for kernel in Kernel::ALL {
        let version = cache.kernel(kernel).map_or("not built".to_owned(), |(version, _)| version);
        println!("kernel   {:<12} {version}", kernel.name());
    }
    for image in [Image::Base, Image::Graphics] {
        let path = cache.image(image, Architecture::X86);
        let file = path.map_or("not built".to_owned(), |path| path.display().to_string());
        println!("image    {:<12} {file}", image.name());
    }
    let lab = Lab::new(cache, BTreeMap::new());
    for profile in [Profile::Counted, Profile::CountedPair, Profile::Threads] {
        let state = lab.lacks(&Machine::new(profile, Kernel::RealTime)).unwrap_or_else(|| "ready".into());
        println!("profile  {:<12} {} CPU(s), {state}", profile.name(), profile.cpus());
    }
    for device in Device::ALL {
        println!("device   {}", device.name());
    }
    Ok(ExitCode::SUCCESS)
}

fn corpus(names: &[&str]) -> Result<ExitCode, LabError> {
    build(&["base"])?;
    // Looked up at run time: a target folder that several checkouts share may hold a program that was built in another
    // one.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let folder = Path::new(&own).join("../fixtures/traces/planted");
    let started = Instant::now();
    let lab = Lab::new(Cache::of_user()?, BTreeMap::new());
    let written = whylate_lab::corpus::regenerate(&lab, &folder, names, &|text| eprintln!("lab: {text}"))?;
    eprintln!("lab: recorded {written} traces in {:.0} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// The kernels that a test's words may select: those that they name, otherwise all with `--all-kernels`, otherwise the
/// usual ones.
fn kernels(words: &[&str]) -> Vec<Kernel> {
    let named: Vec<Kernel> = words.iter().filter_map(|word| Kernel::named(word)).collect();
    let has_all = words.contains(&"--all-kernels");
    let is_chosen = |kernel: &Kernel| has_all || Kernel::USUAL.contains(kernel);
    if named.is_empty() { Kernel::ALL.into_iter().filter(is_chosen).collect() } else { named }
}

/// Builds the lab and the program for guests, and becomes the tests.
fn test(names: &[&str]) -> Result<ExitCode, LabError> {
    let kernels = kernels(names);
    let others: Vec<&str> =
        kernels.iter().filter(|kernel| !Kernel::USUAL.contains(kernel)).map(|kernel| kernel.name()).collect();
    build(&others)?;
    let architectures: BTreeSet<Architecture> = kernels.iter().map(|kernel| kernel.architecture()).collect();
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let start = |command: &str| {
        let command = command.to_owned();
        move |source| LabError::Start { command, source }
    };
    let mut build = cargo();
    build.args(["build", "--profile", "dist", "--package", "whylate"]);
    build.args(architectures.iter().flat_map(|architecture| ["--target", architecture.target()]));
    let status = build.status().map_err(start("cargo build"))?;
    if !status.success() {
        let output = "see above".to_owned();
        return Err(LabError::Command { command: "cargo build --package whylate".into(), status, output });
    }
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--test", "lab", "--"]).args(names);
    for architecture in architectures {
        tests.envs(binary(architecture).map(|binary| (architecture.binary_variable(), binary)));
    }
    if let (Some(packages), None) = (packages(), std::env::var_os("WHYLATE_LAB_PACKAGES")) {
        tests.env("WHYLATE_LAB_PACKAGES", packages);
    }
    if std::env::var_os("WHYLATE_LAB").is_none() {
        tests.env("WHYLATE_LAB", "on");
    }
    Err(start("cargo test")(tests.exec()))
}
