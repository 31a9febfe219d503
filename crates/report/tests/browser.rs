//! The HTML report in a browser: pictures are drawn, a spike opens, no network request is made, no script fails, a
//! phone shows the maximum, and print takes two pages. Needs `chromium`; skipped with the reason if it is not
//! installed.

mod fixture;

use std::path::Path;
use std::process::{Command, Stdio};
use whylate_core::result::RunResult;
use whylate_testing::{Need, skip};

/// Runs in the page as the page's own scripts do; sends its findings to the frame's parent.
const PROBE: &str = r##"<script>
const found = { errors: [], saved: [] };
addEventListener("error", (event) => found.errors.push(event.message));
addEventListener("unhandledrejection", (event) => found.errors.push(String(event.reason)));
for (const kind of ["error", "warn"]) console[kind] = (...words) => found.errors.push(words.join(" "));
HTMLAnchorElement.prototype.click = function () { found.saved.push([this.download, this.href]); };
const moment = () => new Promise((done) => setTimeout(done, 50));
addEventListener("load", async () => {
  const blank = (canvas) => {
    const { width, height } = canvas;
    return !width || canvas.getContext("2d").getImageData(0, 0, width, height).data.every((value) => value === 0);
  };
  const charts = [...document.querySelectorAll("[data-chart]")];
  found.charts = charts.length;
  found.blank = charts.filter((chart) => !chart.querySelector("canvas") || blank(chart.querySelector("canvas"))).length;
  found.unlabelled = charts.filter((chart) => !chart.getAttribute("aria-label")).length;
  found.fetched = performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length;
  for (const over of document.querySelectorAll(".u-over")) {
    const box = over.getBoundingClientRect();
    const at = (kind, x, y) => over.dispatchEvent(new MouseEvent(kind, { bubbles: true, clientX: box.left + x, clientY: box.top + y }));
    for (let x = 0; x < box.width && !document.querySelector("tr.open"); x += 6) {
      for (let y = 0; y < box.height; y += 6) {
        at("mousemove", x, y);
        if (over.style.cursor === "pointer") { for (const kind of ["mousedown", "mouseup", "click"]) at(kind, x, y); break; }
      }
    }
  }
  const open = document.querySelector("tr.open");
  found.opened = open ? open.id : "";
  found.focused = open && document.activeElement === open;
  found.wide = document.documentElement.scrollWidth > innerWidth;
  const heads = [...document.querySelectorAll("#matrix th, article th, section th")].filter((th) => th.textContent === "max");
  const seen = (th) => th.offsetWidth > 0 && th.getBoundingClientRect().right <= innerWidth;
  found.max = heads.length > 0 && seen(heads[0]);
  // Hovering describes a dot; arrow keys and Enter do the same without a mouse.
  const line = [...document.querySelectorAll(".uplot")].find((plot) => plot.querySelector(".u-over").tabIndex === 0);
  const said = line.parentElement.querySelector(".said"), key = (key) => line.querySelector(".u-over").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  found.hovered = said.textContent.trim();
  for (const row of document.querySelectorAll("tr.open")) row.classList.remove("open");
  key("ArrowRight");
  found.keyed = said.textContent.trim();
  key("Enter");
  found.entered = (document.querySelector("tr.open") || {}).id;
  // Dragging zooms; a double click shows everything again.
  const over = line.querySelector(".u-over"), canvas = line.querySelector("canvas"), box = over.getBoundingClientRect();
  const ticks = () => canvas.toDataURL();
  const mouse = (kind, x) => over.dispatchEvent(new MouseEvent(kind, { bubbles: true, button: 0, clientX: box.left + x, clientY: box.top + 60, movementX: 5 }));
  await moment();
  const whole = ticks();
  mouse("mousedown", box.width * 0.2);
  mouse("mousemove", box.width * 0.6);
  mouse("mouseup", box.width * 0.6);
  await moment();
  found.zoomed = ticks() !== whole;
  mouse("dblclick", box.width * 0.5);
  await moment();
  found.unzoomed = ticks() === whole;
  for (const button of document.querySelectorAll("button.save")) { button.click(); await moment(); }
  const svgs = found.saved.filter(([name]) => name.endsWith(".svg")).map(([, address]) => decodeURIComponent(address.slice(address.indexOf(",") + 1)));
  const parsed = svgs.map((text) => new DOMParser().parseFromString(text, "image/svg+xml"));
  found.svgs = parsed.filter((svg) => !svg.querySelector("parsererror") && svg.querySelectorAll("path").length > 5 && svg.querySelectorAll("text").length > 3).length;
  found.pngs = found.saved.filter(([name, address]) => name.endsWith(".png") && address.startsWith("data:image/png") && address.length > 2000).length;
  found.saved = found.saved.map(([name]) => name);
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  found.paper = getComputedStyle(document.body).backgroundColor;
  // As on paper: which parts are left.
  const print = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media && rule.media.mediaText === "print");
  const paper = document.createElement("style");
  paper.textContent = print.flatMap((rule) => [...rule.cssRules]).filter((rule) => rule.selectorText).map((rule) => rule.cssText).join("\n");
  document.head.append(paper);
  found.printed = [...document.querySelectorAll("main > section, main > div")].filter((part) => part.offsetHeight > 0).map((part) => part.id);
  parent.document.body.textContent = JSON.stringify(found);
});
</script>"##;

fn page(run: &RunResult) -> String {
    whylate_report::run_with_charts(run).unwrap().html()
}

/// The browser's output, or `None` if it is skipped.
fn chromium(arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("chromium");
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    ]);
    match command.args(arguments).stderr(Stdio::null()).output() {
        Ok(output) if output.status.success() => Some(output.stdout),
        Ok(output) => panic!("chromium {arguments:?}: {}", output.status),
        Err(error) => {
            skip(Need::Program("chromium"), format!("chromium cannot be started: {error}"));
            None
        }
    }
}

/// What the page reports about itself at that width.
fn looked_at(page: &str, width: u32, more: &[&str]) -> Option<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frame.html");
    let page = page.replacen("<head>", &format!("<head>{PROBE}"), 1);
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame =
        format!("<!doctype html><body><iframe width={width} height=2000 srcdoc=\"{page}\"></iframe></body>");
    std::fs::write(&path, frame).unwrap();
    let url = format!("file://{}", path.display());
    let arguments: Vec<&str> =
        more.iter().copied().chain(["--window-size=1400,2200", "--dump-dom", &url]).collect();
    let text = String::from_utf8(chromium(&arguments)?).unwrap();
    let (begin, end) = (text.find("{\"errors\"").expect(&text), text.rfind('}').unwrap());
    Some(serde_json::from_str(&text[begin..=end]).unwrap())
}

#[test]
fn pictures_are_drawn_a_spike_opens_and_nothing_is_fetched() {
    let mut run = fixture::run_result(&[1]);
    run.warnings[0].fix = Some(format!("`whylate treat apply sysfs /sys/{}`", "check_interval/".repeat(8)));
    let page = page(&run);
    for (width, more) in [(1_200, &[][..]), (390, &[]), (1_200, &["--blink-settings=preferredColorScheme=0"])]
    {
        let Some(found) = looked_at(&page, width, more) else { return };
        assert_eq!(found["errors"], serde_json::json!([]), "{found}");
        assert!(found["charts"].as_u64() >= Some(5), "{found}");
        for nothing in ["blank", "unlabelled", "fetched"] {
            assert_eq!(found[nothing], 0, "{nothing}: {found}");
        }
        assert!(
            found["opened"].as_str().unwrap().starts_with("spike-") && found["focused"] == true,
            "{found}"
        );
        for said in ["hovered", "keyed"] {
            assert!(found[said].as_str().unwrap().contains("CPU 1"), "{said}: {found}");
        }
        assert!(found["entered"].as_str().is_some_and(|row| row.starts_with("spike-")), "{found}");
        assert_eq!((&found["zoomed"], &found["unzoomed"]), (&true.into(), &true.into()), "{found}");
        assert_eq!((&found["svgs"], &found["pngs"]), (&found["charts"], &found["charts"]), "{found}");
        assert_eq!((&found["wide"], &found["max"]), (&false.into(), &true.into()), "{width}: {found}");
        let printed = serde_json::json!(["summary", "late-time", "matrix", "pictures", "warnings"]);
        assert_eq!(found["printed"], printed, "{found}");
        let dark = found["paper"] != "rgb(255, 255, 255)";
        assert_eq!(found["dark"], dark, "{found}");
    }
}

#[test]
fn many_cpus_have_heat_maps() {
    let cpus: Vec<u32> = (0..64).collect();
    let Some(found) = looked_at(&page(&fixture::run_result(&cpus)), 1_200, &[]) else { return };
    assert_eq!((&found["errors"], &found["blank"]), (&serde_json::json!([]), &0.into()), "{found}");
}

#[test]
fn it_prints_on_two_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (html, pdf) = (folder.path().join("page.html"), folder.path().join("page.pdf"));
    std::fs::write(&html, page(&fixture::run_result(&[1]))).unwrap();
    let to = format!("--print-to-pdf={}", pdf.display());
    if chromium(&["--no-pdf-header-footer", &to, &format!("file://{}", html.display())]).is_none() {
        return;
    }
    assert_eq!(pages(&pdf), 2);
}

/// Page objects of a PDF.
fn pages(pdf: &Path) -> usize {
    let bytes = std::fs::read(pdf).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.matches("/Type /Page").count() - text.matches("/Type /Pages").count()
}

/// The series of a statistic over runs: a dot for each, and a change.
#[test]
fn a_series_has_a_dot_per_run() {
    let Some(found) = looked_at(&fixture::pages::series().html(), 1_000, &[]) else { return };
    assert_eq!((&found["errors"], &found["blank"]), (&serde_json::json!([]), &0.into()), "{found}");
    assert!(found["keyed"].as_str().unwrap().contains("2026-10-01"), "{found}");
    assert_eq!((&found["entered"], &found["svgs"]), (&"run-1".into(), &1.into()), "{found}");
}

/// Pictures of five reports for visual checks: `WHYLATE_PICTURES=1 cargo test --workspace --test browser
/// five_reports`.
#[test]
fn pictures_of_five_reports() {
    if std::env::var_os("WHYLATE_PICTURES").is_none() {
        skip(
            Need::Variable("WHYLATE_PICTURES=1 (writes docs/images)"),
            "WHYLATE_PICTURES is not set: it writes docs/images",
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    for (name, page) in fixture::pages::five_reports() {
        let html = folder.path().join("page.html");
        std::fs::write(&html, page.html()).unwrap();
        let image = folder.path().join(format!("{name}.png"));
        let shot = format!("--screenshot={}", image.display());
        let address = format!("file://{}", html.display());
        if chromium(&["--window-size=820,1060", &shot, &address]).is_none() {
            return;
        }
        std::fs::copy(&image, images.join(format!("{name}.png"))).unwrap();
    }
}
