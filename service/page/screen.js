// What all screens have in common: a title, the choice of a model, a line of status, and the calls they made.

import { chosen, correct, here, isNew, preferred } from "./address.js";
import { keyNeeded, latest, wordsOf } from "./api.js";
import { callPanel } from "./calls.js";
import { button, choice, counted, field, h, newId } from "./dom.js";

// A text that may have more tokens than a model takes at once is read in windows. A token may be one byte, of which a
// unit of a text has three at most; special tokens come on top.
export const needsWindows = (text, model) => 3 * text.length + 4 > model.max_input_tokens;

const LATE_MS = 700; // from when on it is said that an answer is waited for
const VERY_LATE_MS = 5000; // a model that nobody asks may have been put to sleep

const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`);

// `build` gets the frame and returns what stands between the title and the calls; `ask` is run with a signal. What it
// sets as the frame's `clear` takes results away that are another model's, or of a text before one that was refused. Its
// `fieldOf` finds the control of what a request calls by a name, given the setting that was asked by and the refusal's
// words, too. Of a screen that asks on a button alone, an answer is older than what is typed since, unless the screen
// `keeps` its answers as a conversation does.
export function makeScreen(title, models, { build, ask, auto = true, keeps = auto }) {
  const said = h("span", { class: "heard" });
  const figures = h("span", {});
  // Not as a whole: figures that change later are no reason to hear the answer again.
  const status = h("p", { class: "status", role: "status", "aria-atomic": "false", tabindex: -1 }, said, figures);
  const problem = h("p", { class: "problem", role: "alert", id: newId(), hidden: true });
  const again = button("Try again", () => frame.wish(0), { hidden: true });
  const older = h("p", { class: "soft", hidden: true }, "What stands below is of the input before.");
  const about = h("p", { class: "about" });
  const absent = h("p", { class: "problem", role: "alert", hidden: true });
  const calls = callPanel();
  const frame = {
    model: preferred(models),
    trouble: h("div", {}, problem, again, older), // for the screen to put where it is seen: below what asks
    show: calls.show,
    // `sentence` is the answer for who hears it; how long it took comes after.
    told(sentence, ...newest) {
      root.removeAttribute("aria-busy");
      state(newest.map(told).join("; "), sentence && `${sentence}. `);
      calls.show(...newest);
    },
    say: (text) => state(text),
    // Where nothing is asked, as of an empty text, nothing stays of what was answered before.
    empty(...results) {
      frame.say("");
      outdated(false);
      calls.show();
      for (const each of results) each.replaceChildren();
    },
  };

  let endWait = () => {}; // of the newest question

  // Tells in time that an answer is waited for; returns what ends that, with the words that it has told.
  function beginWait() {
    let timers = [];
    let told = "";
    const show = (text) => (figures.textContent = told = text);
    const tell = (text) => () => {
      if (!keyNeeded()) return show(text);
      timers.forEach(clearTimeout);
      show("Waiting for the API key …");
      keyNeeded().then(begin); // only then is the server asked again
    };
    const late = "Waiting for the answer …";
    let isOver = false;
    function begin() {
      if (isOver) return;
      if (told) show("");
      timers = [
        setTimeout(tell(late), LATE_MS),
        setTimeout(tell(`${late} The model may be starting, which can take a minute or more.`), VERY_LATE_MS),
      ];
    }
    begin();
    return () => {
      isOver = true;
      timers.forEach(clearTimeout);
      if (told && figures.textContent === told) figures.textContent = "";
    };
  }

  function state(text, sentence = "") {
    endWait();
    solved();
    if (said.textContent !== sentence) said.textContent = sentence;
    figures.textContent = text;
  }

  function outdated(isOlder) {
    older.hidden = !isOlder;
    root.classList.toggle("older", isOlder);
  }

  function offerAgain(isUseful) {
    if (!isUseful && document.activeElement === again) status.focus(); // a button that is hidden loses it
    again.hidden = !isUseful;
  }

  function solved() {
    problem.hidden = true;
    blame(null);
    offerAgain(false);
  }

  let blamed = null; // the control of what was refused
  function blame(control) {
    blamed?.removeAttribute("aria-invalid");
    blamed?.removeAttribute("aria-describedby");
    blamed = control;
    blamed?.setAttribute("aria-invalid", "true");
    blamed?.setAttribute("aria-describedby", problem.id);
  }

  function told({ path, seconds: took, answer, setting }, place) {
    if (place && path === "explain") return `explained in ${seconds(took)}`; // of the same tokens
    const tokens = answer?.usage ? answer.usage.prompt_tokens + answer.usage.completion_tokens : null;
    const by = setting ? ` by setting ${setting}` : "";
    return `${place ? "answered" : "Answered"}${by} in ${seconds(took)}${tokens ? ` (${counted(tokens, "token")})` : ""}`;
  }

  function fail(error) {
    endWait();
    frame.clear?.();
    const { param, call, message } = error;
    const control = error.control ?? (param ? frame.fieldOf?.(param, call?.setting, message) : null);
    problem.textContent = inWords(error, control);
    problem.hidden = false;
    blame(control ?? null);
    offerAgain(!param && !error.control && !error.isFinal); // what is wrong would be refused again
    said.textContent = figures.textContent = "";
    if (call) calls.show(call);
    frame.trouble.scrollIntoView({ block: "nearest" });
  }

  const { wish } = latest(async (signal) => {
    root.setAttribute("aria-busy", "true"); // until what is shown is what this wish asked for
    said.textContent = figures.textContent = "";
    const wasOlder = !older.hidden;
    outdated(false);
    endWait();
    const end = beginWait();
    endWait = end;
    try {
      await ask(signal);
    } catch (error) {
      if (wasOlder && !error.call) outdated(true); // nothing was asked
      throw error;
    } finally {
      end();
      root.removeAttribute("aria-busy");
    }
  }, fail);
  frame.wish = wish;

  const picker = choice(
    models.map((model) => [model.id, model.id]),
    frame.model.id,
    () => {
      chosen(picker.value);
      choose(picker.value);
    },
  );
  function choose(id) {
    frame.model = models.find((model) => model.id === id);
    const { description, not_for: unfit } = frame.model;
    about.textContent = (unfit ? `${description} Not for ${unfit}.` : description).replace(/\.\.$/, ".");
    frame.empty();
    frame.clear?.();
    frame.onmodel?.();
    absent.hidden = true;
    if (auto) frame.wish(0);
  }

  // The address may name another model when the screen is shown again; else it gets the name of this one. Where one asks
  // by a button, going back changes no model: what was written would be lost.
  function settle() {
    if (!root.isConnected) return;
    const { screen, model: wanted } = here();
    const isHere = models.some(({ id }) => id === wanted);
    if (isHere && wanted !== frame.model.id && (auto || isNew())) {
      picker.value = wanted;
      choose(wanted);
    }
    absent.textContent = `There is no model ${wanted} here; ${frame.model.id} is shown.`;
    absent.hidden = wanted === null || isHere;
    if (wanted === frame.model.id) chosen(wanted);
    else correct(screen, frame.model === models[0] ? null : frame.model.id);
  }
  addEventListener("shown", settle);

  const hasAsked = () => !calls.element.hidden || root.hasAttribute("aria-busy");
  const body = build(frame);
  const root = h(
    "article",
    { class: "screen", oninput: () => !keeps && hasAsked() && outdated(true) },
    h("div", { class: "head" }, h("h1", {}, title), field("Model", picker, { class: "field picker" })),
    about,
    absent,
    body,
    status,
    calls.element,
  );
  choose(frame.model.id);
  return root;
}

// Whether a refusal is of a text that is too long, to which the server gives no code of its own.
export const isTooLong = (words) => /has (more than )?\d+ (tokens|characters)/.test(words);

// A refusal calls a field by its name in a request; who reads it knows the label.
function inWords(error, control) {
  const words = wordsOf(error);
  const label = control?.labels[0]?.textContent;
  if (!label) return words;
  const sentence = words.startsWith(`${error.param}: `) ? words.slice(error.param.length + 2) : words;
  return `${label}: ${sentence}${isTooLong(sentence) ? ". Make it shorter." : ""}`;
}
