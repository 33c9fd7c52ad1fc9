// Works in JupyterLab as a person does, and prints what it saw as JSON, one entry a step: opens notebooks, runs cells
// with the keyboard, edits files in between. It judges nothing: test_lab.py does.
//
//   node lab.mjs CHROMIUM PROFILE ADDRESS TOKEN STEPS     (STEPS: JSON, see the functions at the end)

import { readFileSync, writeFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, profile, address, token, steps] = process.argv.slice(2);
const PATIENCE = 120_000; // milliseconds, for a cell that hangs

const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  viewport: { width: 1280, height: 900 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
const page = await context.newPage();

const doing = { open, run, replace };
const seen = [];
try {
  for (const step of JSON.parse(steps)) seen.push(await doing[step.do](step));
} finally {
  await context.close();
}
console.log(JSON.stringify(seen));

// {"do": "open", "path": "notebooks/explore.ipynb"} -> its code cells, by id, once the kernel is ready
async function open({ path }) {
  // A workspace of its own: the usual one would bring back what an earlier run had open, and put it in front.
  await page.goto(`${address}/lab/workspaces/run${Date.now()}/tree/${path}?token=${token}`, { waitUntil: "load" });
  await page.waitForSelector(".jp-Notebook", { timeout: PATIENCE });
  await page.waitForFunction(
    (path) => {
      // The kernel may be ready before the cells are there.
      const panel = window.jupyterapp?.shell.currentWidget;
      const loaded = panel?.context?.path === path && panel.context.isReady && panel.content?.widgets?.length > 1;
      return loaded && panel.sessionContext?.session?.kernel?.status === "idle";
    },
    path,
    { timeout: PATIENCE },
  );
  return page.evaluate(() => {
    const cells = window.jupyterapp.shell.currentWidget.content.widgets;
    return cells.filter((cell) => cell.model.type === "code").map((cell) => cell.model.id);
  });
}

// {"do": "run", "cell": "gate"} -> what stands below the cell when it has run: error, text, pictures in sight
async function run({ cell }) {
  await page.waitForFunction(
    (id) => window.jupyterapp.shell.currentWidget?.content?.widgets?.some((one) => one.model?.id === id),
    cell,
    { timeout: PATIENCE },
  );
  const before = await page.evaluate((id) => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const place = notebook.widgets.findIndex((one) => one.model.id === id);
    notebook.activeCellIndex = place;
    notebook.mode = "command";
    notebook.node.focus();
    return notebook.widgets[place].model.executionCount;
  }, cell);
  await page.keyboard.press("Shift+Enter");
  await page.waitForFunction(
    ([id, count]) => {
      const panel = window.jupyterapp.shell.currentWidget;
      const model = panel.content.widgets.find((one) => one.model?.id === id)?.model;
      return model && model.executionCount !== null && model.executionCount !== count && panel.sessionContext.session.kernel.status === "idle";
    },
    [cell, before],
    { timeout: PATIENCE },
  );
  return page.evaluate(async (id) => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const place = notebook.widgets.findIndex((one) => one.model.id === id);
    await notebook.scrollToItem(place);
    const shown = notebook.widgets[place];
    const outputs = Array.from({ length: shown.model.outputs.length }, (_, at) => shown.model.outputs.get(at).toJSON());
    const error = outputs.find((one) => one.output_type === "error");
    const pictures = [...shown.node.querySelectorAll(".jp-OutputArea img")];
    await Promise.all(pictures.map((picture) => picture.decode().catch(() => {})));
    return {
      cell: id,
      error: error ? `${error.ename}: ${error.evalue}` : null,
      text: shown.node.querySelector(".jp-OutputArea")?.textContent ?? "",
      figures: pictures.map((picture) => {
        const { width, height } = picture.getBoundingClientRect();
        return { id: picture.closest("figure")?.id, natural: picture.naturalWidth, width, height };
      }),
    };
  }, cell);
}

// {"do": "replace", "file": "…", "after": "its_kernel(", "from": "a piece", "to": "another"} -> whether it stood there
async function replace({ file, after, from, to }) {
  const text = readFileSync(file, "utf8");
  const place = text.indexOf(from, text.indexOf(after));
  if (place < 0) return false;
  writeFileSync(file, text.slice(0, place) + to + text.slice(place + from.length));
  return true;
}
