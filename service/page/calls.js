// A panel with what a screen has just asked, in a form to copy, and what was answered.

import { nameOf } from "./api.js";
import { FORMS, hasForm, readFile } from "./code.js";
import { button, copyButton, h } from "./dom.js";

// A panel at the end of a screen; `show` gives it the newest calls.
export function callPanel() {
  const pre = h("pre", { tabindex: 0, role: "region", "aria-label": "The request or its answer" });
  const which = h("div", { class: "choices", role: "group", "aria-label": "Request" });
  const save = h("a", { download: "body.json", hidden: true }, "Save body.json"); // which the code reads
  let calls = [];
  let form = "curl";
  let wanted = 0; // the call that was chosen, also while there are fewer

  const forms = h(
    "div",
    { class: "choices", role: "group", "aria-label": "Form" },
    Object.keys(FORMS).map((name) => button(name, () => draw({ form: name }))),
  );
  function draw(change = {}) {
    form = change.form ?? form;
    wanted = change.wanted ?? wanted;
    if (!element.open || !calls.length) return;
    const number = Math.min(wanted, calls.length - 1);
    const call = calls[number];
    const shown = hasForm(call, form) ? form : "Python";
    for (const each of forms.children) {
      each.hidden = !hasForm(call, each.textContent);
      each.setAttribute("aria-pressed", String(each.textContent === shown));
    }
    [...which.children].forEach((each, index) => each.setAttribute("aria-pressed", String(index === number)));
    pre.textContent = FORMS[shown](call);
    offer(readFile(call, shown));
  }

  function offer(text) {
    URL.revokeObjectURL(save.href);
    save.hidden = !text;
    if (text) save.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    else save.removeAttribute("href");
  }

  const element = h(
    "details",
    { class: "call", hidden: true, ontoggle: () => draw() },
    h("summary", {}, "The same from your own program"),
    h("div", { class: "row" }, forms, which, copyButton(pre), save),
    pre,
  );
  const show = (...newest) => {
    calls = newest;
    element.hidden = !calls.length;
    const choices = newest.length < 2 ? [] : newest;
    which.replaceChildren(...choices.map((call, index) => button(nameOf(call), () => draw({ wanted: index }))));
    draw();
  };
  return { element, show };
}
