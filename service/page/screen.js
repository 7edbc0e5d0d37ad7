// What all screens have in common: a title, the choice of a model, a line of status, and the calls they made.

import { latest, nameOf, wordsOf } from "./api.js";
import { callPanel } from "./calls.js";
import { button, choice, counted, field, h } from "./dom.js";

// A text that may have more tokens than a model takes at once is read in windows. A token may be one byte, of which a
// unit of a text has three at most; special tokens come on top.
export const needsWindows = (text, model) => 3 * text.length + 4 > model.max_input_tokens;

const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`);

// `build` gets the frame and returns what stands between the title and the calls; `ask` is run with a signal. What it
// sets as the frame's `clear` takes results away that are another model's, or of a text before one that was refused.
export function makeScreen(title, models, { build, ask, auto = true }) {
  const status = h("p", { class: "status", role: "status", tabindex: -1 });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const again = button("Try again", () => frame.wish(0), { hidden: true });
  const about = h("p", { class: "about" });
  const calls = callPanel();
  const frame = {
    model: models[0],
    show: calls.show,
    told(...newest) {
      root.removeAttribute("aria-busy");
      solved();
      status.replaceChildren(...newest.map(told).flatMap((text, index) => (index ? [" · ", text] : [text])));
      calls.show(...newest);
    },
    say(text) {
      solved();
      status.textContent = text;
    },
    // Where nothing is asked, as of an empty text, nothing stays of what was answered before.
    empty(...results) {
      frame.say("");
      calls.show();
      for (const each of results) each.replaceChildren();
    },
  };

  function offerAgain(isUseful) {
    if (!isUseful && document.activeElement === again) status.focus(); // a button that is hidden loses it
    again.hidden = !isUseful;
  }

  function solved() {
    problem.hidden = true;
    offerAgain(false);
  }

  function told({ seconds: took, answer, ...call }) {
    const tokens = answer?.usage ? answer.usage.prompt_tokens + answer.usage.completion_tokens : null;
    return `${nameOf(call)} ${seconds(took)}${tokens ? `, ${counted(tokens, "token")}` : ""}`;
  }

  function fail(error) {
    frame.clear?.();
    problem.textContent = wordsOf(error);
    problem.hidden = false;
    offerAgain(!error.param && !error.isAnswered); // what is wrong would be refused again
    status.textContent = "";
    if (error.call) calls.show(error.call);
  }

  const { wish } = latest(async (signal) => {
    root.setAttribute("aria-busy", "true"); // until what is shown is what this wish asked for
    status.textContent = "";
    try {
      await ask(signal);
    } finally {
      root.removeAttribute("aria-busy");
    }
  }, fail);
  frame.wish = wish;

  const picker = choice(
    models.map((model) => [model.id, model.id]),
    models[0].id,
    () => choose(picker.value),
  );
  function choose(id) {
    frame.model = models.find((model) => model.id === id);
    const { description, not_for: unfit } = frame.model;
    about.textContent = (unfit ? `${description} Not for ${unfit}.` : description).replace(/\.\.$/, ".");
    frame.empty();
    frame.clear?.();
    frame.onmodel?.();
    if (auto) frame.wish(0);
  }

  const body = build(frame);
  const root = h(
    "article",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", {}, title), field("Model", picker, { class: "field picker" })),
    about,
    body,
    problem,
    again,
    status,
    calls.element,
  );
  choose(models[0].id);
  return root;
}
