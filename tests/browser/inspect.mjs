// Opens each page given on the command line in chromium, without a network, and prints what it found as JSON:
// requests, console errors, axe violations and sideways scrolling at every width and colour scheme, what a
// keyboard reaches, how it prints, and what html-validate says of the source. It judges nothing: test_browser.py does.
//
//   node inspect.mjs CHROMIUM PROFILE PAGE...

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { HtmlElement, HtmlValidate } from "html-validate";
import { chromium } from "playwright-core";

const WIDTHS = [360, 1280];
const SCHEMES = ["light", "dark"];
const MOST_TABS = 1000;
const PRINTED_WIDTH = 680; // A4 less its margins, in CSS pixels

const [executablePath, profile, ...pages] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// Of every entry of every list the validator asks whether it is a `dl > dt`, and looks for the answer in the whole page:
// half a minute for a long report. Names alone, and names below names, are told from the element and its parents.
const searched = HtmlElement.prototype.matches;
HtmlElement.prototype.matches = function (selector) {
  const paths = selector.split(",").map((path) => path.trim().split(/\s*>\s*/));
  if (!paths.flat().every((name) => /^[a-z][a-z0-9]*$/.test(name))) return searched.call(this, selector);
  return paths.some((path) => {
    let node = this;
    return path.reverse().every((name) => {
      const fits = node?.is(name);
      node = node?.parent;
      return fits;
    });
  });
};

const validator = new HtmlValidate({
  extends: ["html-validate:recommended"],
  // What a cell printed stands in a <pre> as it was printed, spaces at the end of a line included.
  rules: { "no-trailing-whitespace": "off" },
});

const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  offline: true,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
  ],
});

const found = {};
for (const file of pages) {
  const seen = { requests: [], console: [], views: {}, keyboard: null, validity: validity(file) };
  found[file] = seen;
  const page = await context.newPage();
  const address = pathToFileURL(file).href;
  await page.route("**/*", (route) => {
    const url = route.request().url();
        return url === address ? route.continue() : route.abort();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (url !== address && !url.startsWith("data:") && !seen.requests.includes(url)) seen.requests.push(url);
  });
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) seen.console.push(message.text());
  });
  await page.setViewportSize({ width: WIDTHS[0], height: 800 });
  await page.goto(address, { waitUntil: "load" });
  seen.keyboard = await keyboard(page);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      seen.views[`${width} ${colorScheme}`] = {
        axe: await violations(page, colorScheme),
        sideways: await page.evaluate(sideways, ".mage-table"),
        ground: await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor),
        images: await page.evaluate(() =>
          [...document.images].map((image) => ({
            drawn: image.complete && image.naturalWidth > 0,
            background: getComputedStyle(image).backgroundColor,
          })),
        ),
      };
    }
  }
  seen.print = await printed(page, address);
  await page.close();
}
await context.close();
process.stdout.write(JSON.stringify(found));

function validity(file) {
  // The validator takes seconds over an address of 100 kB: it sees the beginning, mage.report.check the whole.
  const source = readFileSync(file, "utf8").replace(/"(data:[^"]{200})[^"]*"/g, '"$1"');
  const report = validator.validateStringSync(source, file);
  return report.results.flatMap((result) =>
    result.messages.map((one) => `${one.ruleId}, line ${one.line}: ${one.message}`),
  );
}

async function violations(page, colorScheme) {
  await page.evaluate(axe);
  const options = {
    resultTypes: ["violations"],
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  };
  // Of all rules, the colours' alone depend on the scheme.
  if (colorScheme !== SCHEMES[0]) options.runOnly = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
  const result = await page.evaluate((given) => axe.run(document, given), options);
  return result.violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.split("\n").slice(1, 3).join(" ")}`),
  );
}

// Tab through the whole page, opening every fold on the way with Enter.
async function keyboard(page) {
  const opened = [];
  const invisible = [];
  for (let count = 0; count < MOST_TABS; count += 1) {
    await page.keyboard.press("Tab");
    const here = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body || element.dataset.reached) return null;
      element.dataset.reached = "yes";
      const style = getComputedStyle(element);
      return {
        name: element.outerHTML.slice(0, 80),
        visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
        closed: element.tagName === "SUMMARY" && !element.parentElement.open,
      };
    });
    if (here === null) break;
    if (!here.visible) invisible.push(here.name);
    if (here.closed) {
      await page.keyboard.press("Enter");
      opened.push(here.name);
    }
  }
  const rest = await page.evaluate(() => ({
    folded: [...document.querySelectorAll("details:not([open])")].map((one) => one.outerHTML.slice(0, 80)),
    unreached: [...document.querySelectorAll(".mage-table")]
      .filter((one) => !one.dataset.reached)
      .map((one) => one.outerHTML.slice(0, 120)),
  }));
  return { opened, invisible, ...rest };
}

// The page as it is printed, every fold as the reader found it.
async function printed(page, address) {
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  await page.setViewportSize({ width: PRINTED_WIDTH, height: 900 });
  await page.goto(address, { waitUntil: "load" });
  return {
    sideways: await page.evaluate(sideways, "head"),
    ...(await page.evaluate(() => ({
      ground: getComputedStyle(document.documentElement).backgroundColor,
      clutter: [...document.querySelectorAll("nav, .mage-skip, .mage-downloads, .mage-source")]
        .filter((one) => one.checkVisibility())
        .map((one) => one.outerHTML.slice(0, 80)),
      folded: [...document.querySelectorAll("table")]
        .filter((one) => !one.checkVisibility({ contentVisibilityAuto: true }) || !one.getBoundingClientRect().height)
        .map((one) => one.id),
    }))),
  };
}

// What goes beyond the page's edge, and every frame outside of `tables` that scrolls sideways.
function sideways(tables) {
  const root = document.documentElement;
  const wide = [];
  if (root.scrollWidth > root.clientWidth) wide.push(`the page: ${root.scrollWidth} of ${root.clientWidth} px`);
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest(`${tables}, .mage-hidden, .mage-skip, svg`)) continue;
    const box = element.getBoundingClientRect();
    const scrolls = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
    const framed = getComputedStyle(element).overflowX !== "visible";
    if (box.right > root.clientWidth + 1 || (scrolls && framed)) wide.push(element.outerHTML.slice(0, 120));
  }
  return wide;
}
