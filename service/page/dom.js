// Elements, made of names, properties and children. Text only ever becomes text nodes: no string is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

let made = 0;
export const newId = () => `n${(made += 1)}`;

// A control under its label; the label is found by assistive technology through the id.
export function field(label, control, properties) {
  control.id ||= newId();
  return h("div", { class: "field", ...properties }, h("label", { for: control.id }, label), control);
}

export function textarea(value, rows, oninput) {
  return h("textarea", { rows, value, oninput, spellcheck: "false", dir: "auto" });
}

// A text to read. While it is longer than its place the keyboard reaches it, and scrolls it.
export function reading(name, properties, ...children) {
  const text = h("p", { class: "reading", dir: "auto", ...properties }, children);
  const place = { tabindex: 0, role: "region", "aria-label": name };
  new ResizeObserver(() => {
    const isLonger = text.scrollHeight > text.clientHeight;
    for (const [attribute, value] of Object.entries(place)) {
      if (isLonger) text.setAttribute(attribute, value);
      else text.removeAttribute(attribute);
    }
  }).observe(text);
  return text;
}

export const button = (text, onclick, properties) => h("button", { type: "button", onclick, ...properties }, text);

// A button that copies an element's text.
export function copyButton(from) {
  const copy = button("Copy", async () => {
    // Browsers have a clipboard for pages of this machine and of https alone, and may be told to refuse it.
    const isDone = await navigator.clipboard?.writeText(from.textContent).then(() => true, () => false);
    if (!isDone) getSelection().selectAllChildren(from);
    copy.textContent = isDone ? "Copied" : "Selected";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return copy;
}

export const choice = (values, chosen, onchange) => offer(h("select", { onchange }), values, chosen);

// Gives a choice other values.
export function offer(select, values, chosen) {
  select.replaceChildren(...values.map(([value, text]) => h("option", { value }, text)));
  select.value = chosen;
  return select;
}

// Lets the keyboard go through a container's parts by arrows, of which Tab reaches one; call what it returns when they
// are others.
export function roving(container, selector) {
  container.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser's own
    const forward = getComputedStyle(container).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: forward, ArrowLeft: -forward }[event.key];
    const all = [...container.querySelectorAll(selector)];
    const next = step && all[all.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  return () => container.querySelectorAll(selector).forEach((each, index) => (each.tabIndex = index ? -1 : 0));
}

// Offsets in answers count characters; a JavaScript string counts some of them, such as emoji, as two.
export const characters = (text) => Array.from(text);

export const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export const percent = (share) => `${(100 * share).toFixed(share > 0.0995 && share < 0.995 ? 0 : 1)} %`;

// A number with so many digits behind the point; one that is nearly nothing has no sign.
export const rounded = (value, digits = 2) => (Number(value.toFixed(digits)) || 0).toFixed(digits);

// A list of names with bars and numbers, best first; what can be chosen is a button. Long names have the room.
export function bars(rows, { label, onchoose, chosen, long } = {}) {
  return h(
    "ul",
    { class: long ? "bars long" : "bars", "aria-label": label },
    rows.map(({ name, share, told }) =>
      h(
        "li",
        {},
        onchoose
          ? button(name, () => onchoose(name), { class: "name", dir: "auto", "aria-pressed": String(name === chosen) })
          : h("span", { class: "name", dir: "auto" }, name),
        h("span", { class: "bar", "aria-hidden": "true" }, h("span", { "--share": Math.max(0, Math.min(1, share)) })),
        h("span", { class: "number" }, told ?? percent(share)),
      ),
    ),
  );
}

// Shows short examples; choosing one puts it into the field and tells so.
export function samples(texts, target) {
  const use = (text) => {
    target.value = text;
    target.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const short = (text) => (text.length > 44 ? `${text.slice(0, 43)}…` : text);
  return h(
    "p",
    { class: "samples" },
    h("span", {}, "Try"),
    texts.map((text) => button(short(text.replaceAll("\n", " ")), () => use(text), { class: "chip" })),
  );
}
