/* Opens report pages in headless Chromium and checks what a reader would notice.
 *
 *   node check_report.mjs PAGE... [--shots FOLDER] [--chromium PATH]
 *
 * Checked: no console message, no request beyond the file itself, every chart has drawn marks, no
 * table is empty, axe-core finds nothing serious in light and dark, nothing scrolls sideways at 360
 * and 1280 pixels, the Tab key reaches every control, and arrow keys move the cursor of each chart.
 * Needs playwright-core and axe-core: where NODE_PATH or a node_modules folder above says. Exit
 * code 0, 1 with findings, 77 where something it needs is not there. */
import { createRequire } from "node:module";
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const BYTES_MAX = 2 * 1000 * 1000;
const WIDTHS = [360, 1280];
const ARGUMENTS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

function found(name) {
  const places = [process.cwd(), ...(process.env.NODE_PATH || "").split(":").filter(Boolean)];
  for (const place of places) {
    try {
      return createRequire(join(place, "x.js")).resolve(name, {
        paths: [place, join(place, "node_modules")],
      });
    } catch {
      continue;
    }
  }
  console.error(
    `check_report: ${name} is not installed; npm install playwright-core axe-core, and ` +
      "name the folder in NODE_PATH",
  );
  process.exit(77);
}

function settings(argv) {
  const o = { pages: [], shots: null, chromium: null };
  for (let i = 0; i < argv.length; i++) {
    if (argv[i] === "--shots") o.shots = argv[++i];
    else if (argv[i] === "--chromium") o.chromium = argv[++i];
    else o.pages.push(argv[i]);
  }
  const programs = [
    o.chromium,
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
  ].filter(Boolean);
  o.chromium = programs.find((path) => existsSync(path));
  if (!o.chromium) {
    console.error("check_report: no Chromium found; name one with --chromium PATH");
    process.exit(77);
  }
  return o;
}

/* ---- within the page ------------------------------------------------------------------------ */

/* Charts without drawn data, and canvases of one colour only. */
function emptyCharts() {
  const bad = [];
  document.querySelectorAll("figure.chart").forEach((figure) => {
    const name = figure.querySelector("h3").textContent,
      plots = figure.querySelectorAll(".plot");
    if (!plots.length) bad.push(name + ": no plot");
    for (const plot of plots) {
      const canvas = plot.querySelector("canvas.data-canvas");
      if (canvas) {
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data,
          colours = new Set();
        for (let i = 0; i < pixels.length; i += 4)
          colours.add(pixels[i] * 65536 + pixels[i + 1] * 256 + pixels[i + 2]);
        if (colours.size < 2) bad.push(name + ": a canvas of one colour");
        continue;
      }
      const marks = [...plot.querySelectorAll(".data-mark")].filter((mark) => {
        const b = mark.getBBox();
        return b.width + b.height > 0;
      });
      if (!marks.length) bad.push(name + ": no marks");
      if (!plot.querySelector("svg[role=img][aria-label]"))
        bad.push(name + ": no name for the drawing");
    }
    if (!figure.querySelector("details.numbers")) bad.push(name + ": no numbers");
  });
  return bad;
}

/* Figures whose numbers, once opened, have no rows; other tables without any. */
async function emptyTables() {
  const bad = [];
  for (const details of document.querySelectorAll("details.numbers")) details.open = true;
  await new Promise((done) => setTimeout(done, 300));
  for (const details of document.querySelectorAll("details.numbers"))
    if (!details.querySelector("tbody tr td, tbody tr th"))
      bad.push("no numbers: " + details.parentElement.textContent.slice(0, 40));
  for (const table of document.querySelectorAll("table"))
    if (!table.querySelector("tbody tr"))
      bad.push("an empty table: " + table.textContent.slice(0, 40));
  return bad;
}

function brokenHeadings() {
  const bad = [];
  let last = 0;
  document.querySelectorAll("h1, h2, h3, h4").forEach((heading) => {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) bad.push(`heading "${heading.textContent}" leaves out a level`);
    last = level;
  });
  if (/\b(undefined|NaN|\[object)/.test(document.body.innerText))
    bad.push("undefined, NaN or an object is shown as text");
  return bad;
}

const wanted = () =>
  [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")].filter(
    (node) => node.checkVisibility() && !node.closest("[inert]"),
  ).length;

/* ---- checks --------------------------------------------------------------------------------- */

async function keyboard(page) {
  const bad = [],
    reached = new Set(),
    total = await page.evaluate(wanted);
  await page.evaluate(() => {
    document.activeElement.blur();
    let n = 0;
    for (const e of document.querySelectorAll("*")) e.dataset.checkNumber = n++;
  });
  for (let i = 0; i < total + 5; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() =>
      document.activeElement === document.body ? null : document.activeElement.dataset.checkNumber,
    );
    if (at !== null) reached.add(at);
  }
  if (reached.size < total) bad.push(`the Tab key reaches ${reached.size} of ${total} controls`);
  const plots = await page.$$(".plot");
  for (const plot of plots) {
    await plot.focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    const shown = await plot.evaluate(
      (node) => node.querySelector(".tip") && node.querySelector(".tip").textContent,
    );
    if (!shown)
      bad.push("no reading by keyboard: " + (await plot.getAttribute("aria-label")).slice(0, 50));
  }
  await page.waitForTimeout(200);
  if (plots.length && !(await page.evaluate(() => document.getElementById("live").textContent)))
    bad.push("the live region says nothing");
  return bad;
}

/* Tables of thousands of cells, all alike, would take axe-core minutes. */
const closeLong = (cells) =>
  document.querySelectorAll("details.numbers[open]").forEach((details) => {
    if (details.querySelectorAll("td").length > cells) details.open = false;
  });

async function axe(page, source, scheme) {
  await page.evaluate(closeLong, 300);
  await page.evaluate(source);
  const result = await page.evaluate(() =>
    window.axe.run(document, { resultTypes: ["violations"] }),
  );
  return result.violations
    .filter((v) => ["serious", "critical"].includes(v.impact))
    .map(
      (v) =>
        `axe, ${scheme}: ${v.id} (${v.impact}): ${v.nodes.length} times, first ` +
        `${v.nodes[0].target.join(" ")}: ` +
        `${v.nodes[0].failureSummary.replace(/\s+/g, " ").slice(0, 160)}`,
    );
}

async function checkOne(browser, file, axeSource, o) {
  const bad = [],
    url = pathToFileURL(resolve(file)).href,
    name = basename(file).replace(/\.html$/, "");
  if (statSync(file).size > BYTES_MAX)
    bad.push(`${statSync(file).size} bytes; at most ${BYTES_MAX}`);
  for (const scheme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      const context = await browser.newContext({
        viewport: { width, height: width < 600 ? 780 : 900 },
        colorScheme: scheme,
        reducedMotion: "reduce",
      });
      const page = await context.newPage();
      page.on("console", (message) => bad.push(`console: ${message.text()}`));
      page.on("pageerror", (error) => bad.push(`error: ${error.message}`));
      page.on("request", (request) => {
        if (request.url() !== url && !request.url().startsWith("data:"))
          bad.push(`request: ${request.url()}`);
      });
      await page.goto(url);
      await page
        .waitForSelector("html[data-ready]", { timeout: 20000, state: "attached" })
        .catch(() => bad.push("the script did not finish"));
      await page.waitForTimeout(200);
      bad.push(...(await page.evaluate(emptyCharts)), ...(await page.evaluate(brokenHeadings)));
      const wide = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      if (wide > 0) bad.push(`scrolls sideways by ${wide} pixels at ${width}`);
      if (o.shots)
        await page.screenshot({
          path: join(o.shots, `${name}-${scheme}-${width}.png`),
          fullPage: true,
        });
      if (scheme === "light") bad.push(...(await keyboard(page)));
      bad.push(...(await page.evaluate(emptyTables)));
      bad.push(...(await axe(page, axeSource, `${scheme}, ${width} px`)));
      await context.close();
    }
  }
  return [...new Set(bad)];
}

const o = settings(process.argv.slice(2));
const { chromium } = createRequire(import.meta.url)(found("playwright-core"));
const axeSource = readFileSync(found("axe-core"), "utf8");
if (o.shots) mkdirSync(o.shots, { recursive: true });
const browser = await chromium.launch({ executablePath: o.chromium, args: ARGUMENTS });
let failures = 0;
for (const file of o.pages) {
  const bad = await checkOne(browser, file, axeSource, o);
  console.log(`${file}: ${bad.length ? bad.length + " findings" : "fine"}`);
  for (const line of bad) console.log("  " + line);
  failures += bad.length;
}
await browser.close();
process.exit(failures ? 1 : 0);
