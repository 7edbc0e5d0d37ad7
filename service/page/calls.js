// A panel with what a screen has just asked, in a form to copy, and what was answered.

import { FORMS, hasForm } from "./code.js";
import { button, h } from "./dom.js";

// A panel at the end of a screen; `show` gives it the newest calls.
export function callPanel() {
  const pre = h("pre", { tabindex: 0, role: "region", "aria-label": "The request or its answer" });
  const which = h("div", { class: "choices", role: "group", "aria-label": "Request" });
  let calls = [];
  let form = "curl";
  let number = 0;

  const copy = button("Copy", async () => {
    // Browsers have a clipboard for pages of this machine and of https alone, and may be told to refuse it.
    const isDone = await navigator.clipboard?.writeText(pre.textContent).then(() => true, () => false);
    if (!isDone) getSelection().selectAllChildren(pre);
    copy.textContent = isDone ? "Copied" : "Selected";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const forms = h(
    "div",
    { class: "choices", role: "group", "aria-label": "Form" },
    Object.keys(FORMS).map((name) => button(name, () => draw({ form: name }))),
  );
  function draw(change = {}) {
    form = change.form ?? form;
    number = Math.min(change.number ?? number, calls.length - 1);
    if (!element.open || !calls.length) return;
    const call = calls[number];
    const shown = hasForm(call, form) ? form : "Python";
    for (const each of forms.children) {
      each.hidden = !hasForm(call, each.textContent);
      each.setAttribute("aria-pressed", String(each.textContent === shown));
    }
    [...which.children].forEach((each, index) => each.setAttribute("aria-pressed", String(index === number)));
    pre.textContent = FORMS[shown](call);
  }

  const element = h(
    "details",
    { class: "call", hidden: true, ontoggle: () => draw() },
    h("summary", {}, "The same from your own program"),
    h("div", { class: "row" }, forms, which, copy),
    pre,
  );
  const show = (...newest) => {
    calls = newest;
    element.hidden = !calls.length;
    number = Math.max(0, number);
    const choices = newest.length < 2 ? [] : newest;
    which.replaceChildren(...choices.map(({ path }, index) => button(`/${path}`, () => draw({ number: index }))));
    draw();
  };
  return { element, show };
}
