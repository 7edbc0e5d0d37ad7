// Attention maps: every head of every layer small, and one of them large, with the tokens that look and are looked at.

import { button, h, reading, roving } from "./dom.js";
import { halves } from "./maths.js";

const LABELLED = 48; // tokens a side, up to which a large map has their texts
const CELL = 16;
const MARGIN = 84;

// The weights of one head as rows of those that look.
function headOf({ shape, data }, layer, head) {
  const [, heads, rows, columns] = shape;
  const size = rows * columns;
  const from = (layer * heads + head) * size;
  return { rows, columns, weights: data.subarray(from, from + size) };
}

// A pixel for each weight, which is how much there is of the screen's colour. All at once: drawn one by one, those of a
// long text took up to a second.
function paint(canvas, { rows, columns, weights }) {
  const context = canvas.getContext("2d");
  Object.assign(canvas, { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const { data: pixels } = image; // of each its red, green, blue and opacity
  weights.forEach((weight, place) => (pixels[4 * place + 3] = 255 * weight));
  context.putImageData(image, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = getComputedStyle(canvas).color;
  context.fillRect(0, 0, columns, rows);
}

// The same, with lines between the weights and the tokens beside them where there is room.
function paintLarge(canvas, small, looking, seen, chosen) {
  const { width: columns, height: rows } = small;
  const labelled = Math.max(rows, columns) <= LABELLED;
  const margin = labelled ? MARGIN : 0;
  const cell = labelled ? CELL : Math.max(2, Math.floor(560 / Math.max(rows, columns)));
  const scale = globalThis.devicePixelRatio || 1;
  const [width, height] = [margin + columns * cell, margin + rows * cell];
  Object.assign(canvas, { width: width * scale, height: height * scale });
  canvas.style.setProperty("aspect-ratio", `${width} / ${height}`);
  canvas.style.setProperty("width", `${width}px`);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, margin, margin, columns * cell, rows * cell);
  if (!labelled) return;
  for (let row = 0; row <= rows; row += 1) context.clearRect(margin, margin + row * cell - 0.5, columns * cell, 1);
  for (let column = 0; column <= columns; column += 1) context.clearRect(margin + column * cell - 0.5, margin, 1, rows * cell);
  context.fillStyle = style.outlineColor;
  context.font = `11px ${style.fontFamily}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const short = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
  looking.forEach((text, row) => {
    context.globalAlpha = chosen === null || chosen === row ? 1 : 0.45;
    context.fillText(short(text), margin - 5, margin + (row + 0.5) * cell);
  });
  context.globalAlpha = 1;
  context.textAlign = "left";
  seen.forEach((text, column) => {
    context.save();
    context.translate(margin + (column + 0.5) * cell, margin - 5);
    context.rotate(-Math.PI / 2);
    context.fillText(short(text), 0, 0);
    context.restore();
  });
}

// One listener for the view that is shown: with one of its own each view would live as long as the page.
let redraw = () => {};
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => redraw());
addEventListener("shown", () => redraw()); // what is drawn while another screen is shown has no colours

// `looking` and `seen` are the texts of the tokens on the two sides of a map.
export function attentionView(maps, looking, seen) {
  const array = { shape: maps.shape, data: halves(maps.values) };
  let layer = 0;
  let head = 0;
  let from = null;
  const large = h("canvas", { class: "large", role: "img" });
  const title = h("h2", {});
  const strip = reading("What it looks at", { class: "reading strip" });
  const small = maps.layers.map((_, row) =>
    maps.heads.map((_head, column) => h("canvas", { class: "thumb", "aria-hidden": "true", "data-at": `${row} ${column}` })),
  );

  const grid = h(
    "div",
    { class: "heads" },
    maps.layers.map((number, row) =>
      h(
        "div",
        { class: "layer", role: "group", "aria-label": `Layer ${number + 1}` },
        h("span", { class: "soft" }, `Layer ${number + 1}`),
        maps.heads.map((each, column) =>
          h(
            "button",
            {
              type: "button",
              class: "head-button",
              "aria-label": `Layer ${number + 1}, head ${each + 1}`,
              onclick: () => ((layer = row), (head = column), draw()),
            },
            small[row][column],
          ),
        ),
      ),
    ),
  );

  function look(row) {
    from = row;
    draw();
  }

  function draw() {
    const map = headOf(array, layer, head);
    title.textContent = `Layer ${maps.layers[layer] + 1}, head ${maps.heads[head] + 1}`;
    large.setAttribute("aria-label", `Attention of ${title.textContent.toLowerCase()}; rows look at columns`);
    paintLarge(large, small[layer][head], looking, seen, from);
    grid.querySelectorAll("button").forEach((each, index) => {
      each.setAttribute("aria-pressed", String(index === layer * maps.heads.length + head));
    });
    const row = Math.min(from ?? 0, map.rows - 1);
    [...choose.children].forEach((each, index) => each.setAttribute("aria-pressed", String(index === row)));
    const weights = seen.map((_, column) => map.weights[row * map.columns + column]);
    const most = Math.max(...weights, 1e-9);
    const first = weights.map((weight, column) => [weight, seen[column]]).sort(([a], [b]) => b - a).slice(0, 3);
    told.textContent = `“${looking[row]}” looks most at ${first.map(([weight, text]) => `“${text}” ${weight.toFixed(2)}`).join(", ")}`;
    strip.replaceChildren(
      ...seen.flatMap((text, column) => [
        h("span", { class: "word for", "--weight": weights[column] / most, title: weights[column].toFixed(3) }, text),
        " ",
      ]),
    );
  }

  function drawAll() {
    small.forEach((heads, row) => heads.forEach((canvas, column) => paint(canvas, headOf(array, row, column))));
    draw();
  }

  const told = h("p", { class: "soft", "aria-live": "polite" });
  const choose = h(
    "div",
    { class: "tokens", role: "group", "aria-label": "The token that looks" },
    looking.map((text, row) => {
      const act = () => look(row);
      return button(text, act, { class: "chip", dir: "auto", onmouseenter: act, onfocus: act });
    }),
  );
  roving(choose, ".chip")();
  roving(grid, ".head-button")();
  const element = h(
    "div",
    { class: "attention" },
    h("div", { class: "panel" }, h("h2", {}, "Every head"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All heads" }, grid)),
    h("div", { class: "panel" }, title, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "One head" }, large)),
    h("div", { class: "panel wide" }, h("h2", {}, "Where a token looks"), choose, told, strip),
  );
  redraw = () => element.isConnected && drawAll();
  return { element, drawAll };
}
