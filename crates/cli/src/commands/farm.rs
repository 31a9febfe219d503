//! `whylate push`, `pull` and `farm`.

use super::{run, runs};
use crate::arguments::{
    AskedArguments, DispatcherChoice, EngineChoice, FarmCommand, PullArguments, PushArguments,
    QueryArguments, RenderArguments, VerifyArguments,
};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use whylate_core::figure;
use whylate_core::plan::builtin;
use whylate_farm::{Asked, Dispatcher, Engine, FarmFile, Lake, PlanFile, Push, Rendered, Rows, mismatches};
use whylate_store::{Reader, StoreError, assemble};

pub(super) fn push(arguments: &PushArguments) -> Result<Ending> {
    let Some((url, names)) = arguments.words.split_last() else { bail!("name a run, and a lake") };
    let how = Push { replace: arguments.replace, asked: asked(&arguments.asked)? };
    let lake = Lake::open(url, true)?;
    let mut failed = 0;
    for name in names {
        let pushed = runs::named(Path::new(name)).and_then(|run| Ok(lake.push(&run, &how)?));
        match pushed {
            Ok(pushed) => {
                let size = figure::bytes(pushed.bytes);
                let sent = match pushed.objects {
                    0 => "there already".to_owned(),
                    objects => format!("{objects} objects, {size}"),
                };
                output::print(&format!("{}: {sent}", pushed.run))?;
                for line in pushed.mismatches {
                    output::message(&format!("    INCOMPLETE: {line}"));
                }
            }
            // The others are brought all the same.
            Err(error) => {
                failed += 1;
                output::message(&format!("whylate: {error}"));
            }
        }
    }
    Ok(if failed == 0 { Ending::Pass } else { Ending::Incomplete })
}

pub(super) fn pull(arguments: &PullArguments) -> Result<Ending> {
    let url = arguments.url.trim_end_matches('/');
    let Some(dir) = &arguments.dir else { return list(&Lake::open(url, false)?, arguments.check) };
    let (lake, run) = place(url)?;
    let run = lake.find(&run)?;
    let pulled = lake.pull(&run, dir)?;
    output::print(&format!("{}: {} into {}", pulled.run, figure::bytes(pulled.bytes), dir.display()))?;
    Ok(Ending::Pass)
}

/// The lake, and the name of a run in it: `URL/RUN` or `URL/HOST/RUN`.
fn place(url: &str) -> Result<(Lake, String)> {
    let Some((near, run)) = url.rsplit_once('/') else { bail!("{url}: name a run: URL/HOST/RUN or URL/RUN") };
    let nearer = Lake::open(near, false);
    if let Some((far, host)) = near.rsplit_once('/')
        && !nearer.as_ref().is_ok_and(|lake| lake.find(run).is_ok())
        && let Ok(lake) = Lake::open(far, false)
    {
        return Ok((lake, format!("{host}/{run}")));
    }
    Ok((nearer?, run.to_owned()))
}

fn list(lake: &Lake, check: bool) -> Result<Ending> {
    let runs = lake.runs()?;
    let mut damaged = 0;
    for run in &runs {
        if !check {
            output::print(&run.to_string())?;
            continue;
        }
        match lake.check(run) {
            Ok(bytes) => output::print(&format!("{run}: {}, whole", figure::bytes(bytes)))?,
            Err(error) => {
                damaged += 1;
                output::message(&format!("whylate: {error}"));
            }
        }
    }
    if runs.is_empty() {
        output::message(&format!("{} holds no run", lake.url()));
    }
    Ok(if damaged == 0 { Ending::Pass } else { Ending::Incomplete })
}

pub(super) fn execute(command: &FarmCommand) -> Result<Ending> {
    match command {
        FarmCommand::Verify(arguments) => verify(arguments),
        FarmCommand::Render(arguments) => render(arguments),
        FarmCommand::Query(arguments) => query(arguments),
    }
}

fn verify(arguments: &VerifyArguments) -> Result<Ending> {
    let path = runs::named(&arguments.run)?;
    let asked = asked(&arguments.asked)?;
    let reader = Reader::open(&path)?;
    let result = match assemble(&reader) {
        Ok(result) => Some(result),
        Err(StoreError::NoSamples(_) | StoreError::NothingLeft(..)) => None,
        Err(error) => return Err(error.into()),
    };
    let found = mismatches(reader.info(), result.as_ref(), &asked);
    for line in &found {
        output::message(&format!("INCOMPLETE: {line}"));
    }
    if found.is_empty() {
        output::print(&format!("{}: measured what was asked for", path.display()))?;
    }
    Ok(if found.is_empty() { Ending::Pass } else { Ending::Incomplete })
}

fn asked(arguments: &AskedArguments) -> Result<Asked> {
    // It is only compared: nothing of it runs.
    let plan = arguments.plan.as_deref().map(|name| run::read_plan(name, &[], false, true)).transpose()?;
    Ok(Asked { plan, kernel: arguments.kernel.clone(), host: arguments.host.clone() })
}

fn render(arguments: &RenderArguments) -> Result<Ending> {
    let name = arguments.farm.display().to_string();
    let text =
        fs::read_to_string(&arguments.farm).with_context(|| format!("cannot read the farm file {name}"))?;
    let farm = FarmFile::parse(&name, &text)?;
    let beside = arguments.farm.parent().unwrap_or(Path::new("."));
    let (mut plans, mut jobs) = (Vec::new(), Vec::new());
    match &arguments.plan {
        Some(plan) => {
            plans.push(plan_file(plan, None)?);
            jobs.extend((0..farm.hosts.len()).map(|host| (host, 0)));
        }
        None => {
            for rule in &farm.plans {
                let hosts = farm.hosts.iter().enumerate().filter(|(_, host)| rule.is_for(host));
                let before = jobs.len();
                jobs.extend(hosts.map(|(host, _)| (host, plans.len())));
                ensure!(jobs.len() > before, "{name}: no host has the labels of the plan `{}`", rule.plan);
                plans.push(plan_file(&rule.plan, Some(beside))?);
            }
        }
    }
    ensure!(!jobs.is_empty(), "{name}: name a plan, or give the farm file a [[plan]]");
    let mut names: Vec<&str> = plans.iter().map(|plan| plan.plan.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        bail!("two plans have the name `{}`: their files would be one", twice[0]);
    }
    let dispatcher = match arguments.engine {
        DispatcherChoice::Kubernetes => Dispatcher::Kubernetes,
        DispatcherChoice::Slurm => Dispatcher::Slurm,
        DispatcherChoice::Ansible => Dispatcher::Ansible,
        DispatcherChoice::Lava => Dispatcher::Lava,
    };
    let files = whylate_farm::render(&farm, &plans, &jobs, dispatcher);
    write_all(&arguments.output, &files)?;
    output::message(&format!(
        "wrote {} files for {} jobs; {}/README.md says how to begin",
        files.len(),
        jobs.len(),
        arguments.output.display()
    ));
    Ok(Ending::Pass)
}

/// A built-in plan, or one in a file, whose path may be relative to a folder.
fn plan_file(name: &str, beside: Option<&Path>) -> Result<PlanFile> {
    if let Some(known) = builtin::find(name) {
        return Ok(PlanFile { plan: run::read_plan(name, &[], false, true)?, text: known.text.to_owned() });
    }
    let path = beside.map_or_else(|| Path::new(name).to_owned(), |folder| folder.join(name));
    // It is only copied: nothing of it runs.
    let plan = run::read_plan(&path.to_string_lossy(), &[], false, true)?;
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read the plan {}", path.display()))?;
    Ok(PlanFile { plan, text })
}

fn write_all(folder: &Path, files: &[Rendered]) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        output::write_new(&path, &file.text)?;
        if file.is_program() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn query(arguments: &QueryArguments) -> Result<Ending> {
    let (Some(name), Some(lake), false) = (&arguments.question, &arguments.lake, arguments.list) else {
        let line = |it: &whylate_farm::Question| format!("{:<12} {}\n", it.name, it.about());
        output::print(&whylate_farm::library().iter().map(line).collect::<String>())?;
        return Ok(Ending::Pass);
    };
    let known = whylate_farm::library().iter().find(|question| question.name == name);
    let sql = match known {
        Some(question) => question.sql.to_owned(),
        None if !name.contains(['/', '.']) => {
            let names: Vec<&str> = whylate_farm::library().iter().map(|question| question.name).collect();
            bail!(
                "there is no question `{name}`: there are {}; a file is named by its path",
                names.join(", ")
            )
        }
        None => fs::read_to_string(name).with_context(|| format!("cannot read the question {name}"))?,
    };
    let engine = match arguments.engine {
        EngineChoice::Duckdb => Engine::DuckDb,
        EngineChoice::Clickhouse => Engine::ClickHouse,
        EngineChoice::Spark => Engine::Spark,
    };
    let place =
        if lake.contains("://") { lake.clone() } else { std::path::absolute(lake)?.display().to_string() };
    let statements = whylate_farm::statements(engine, &place, &sql)?;
    if arguments.print {
        output::print(&statements.iter().map(|it| format!("{it};\n\n")).collect::<String>())?;
        return Ok(Ending::Pass);
    }
    ensure!(
        place.starts_with("file://") || !place.contains("://"),
        "{lake}: a bucket is read by the engine with its own credentials: give it what --print prints"
    );
    let rows = whylate_farm::ask(engine, &statements)?;
    match (arguments.json, arguments.csv) {
        (true, _) => output::print_json(&rows)?,
        (false, true) => output::print(&separated(&rows))?,
        (false, false) => output::print(&aligned(&rows))?,
    }
    Ok(Ending::Pass)
}

/// A value as text; nothing for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.4}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

/// Comma-separated values, as RFC 4180 says.
fn separated(rows: &Rows) -> String {
    let quoted = |text: String| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    };
    let exact = |value: &Value| quoted(if value.is_number() { value.to_string() } else { cell(value) });
    let line = |row: &Vec<Value>| row.iter().map(exact).collect::<Vec<_>>().join(",") + "\n";
    rows.columns.join(",") + "\n" + &rows.rows.iter().map(line).collect::<String>()
}

/// Columns, as wide as what is in them.
fn aligned(rows: &Rows) -> String {
    let mut lines: Vec<Vec<String>> = vec![rows.columns.clone()];
    lines.extend(rows.rows.iter().map(|row| row.iter().map(cell).collect()));
    let wide = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.columns.len()).map(wide).collect();
    let line = |line: &Vec<String>| {
        let padded = line.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}
