// Translation as one types, both ways, with the words that correspond and the next best translations.

import { post } from "../api.js";
import { button, characters, copyButton, field, h, offer, reading, roving, textarea } from "../dom.js";
import { called, goalsOf, isSample, sampleIn, sourceChoice, tag } from "../languages.js";
import { makeScreen } from "../screen.js";

const MANY = 1000; // characters, from which on words are not made buttons and no alternatives are asked for

export function open(models) {
  const source = h("select", { onchange: () => sourceChanged() });
  const target = h("select", { onchange: () => frame.wish(0) });
  const text = textarea("", 5, () => frame.wish());
  const detected = h("p", { class: "soft" });
  const before = reading("Words with their partners", { class: "reading partners" });
  const after = reading("The translation", { class: "reading large" });
  const copy = copyButton(after);
  const settle = [before, after].map((each) => roving(each, ".pair"));
  const others = h("div", {});
  let frame;

  function sourceChanged(wanted) {
    if (source.value !== "auto" && isSample(text.value)) text.value = sampleIn(source.value);
    directionChanged(wanted);
  }

  function directionChanged(wanted = target.value) {
    const found = goalsOf(frame.model, source.value);
    const kept = found.includes(wanted) ? wanted : found[0];
    offer(target, found.map((each) => [each, called(each)]), kept);
    frame.wish(0);
  }

  function swap() {
    const from = target.value;
    const to = source.value === "auto" ? (shown.detected ?? "en") : source.value;
    if (!goalsOf(frame.model, from).includes(to)) return frame.say(`This model does not translate from ${called(from)} into ${called(to)}.`);
    const { input, translation } = shown;
    if (input === text.value && shown.source === source.value && shown.target === from) {
      text.value = translation;
      show({ translations: [input] }, translation, { source: from, target: to }); // so that two swaps are none
    }
    source.value = from;
    directionChanged(to);
  }
  let shown = {}; // the translation that is shown, and of what it is one

  function build(made) {
    frame = made;
    frame.clear = () => show({ translations: [""] }, "", {});
    frame.onmodel = () => {
      offer(source, ...sourceChoice(frame.model));
      sourceChanged("de");
    };
    frame.fieldOf = (name) => ({ input: text, source, target })[name];
    return [
      h(
        "div",
        { class: "row languages" },
        field("From", source),
        button("⇄", swap, { class: "swap", "aria-label": "Swap the languages" }),
        field("Into", target),
      ),
      frame.trouble,
      h(
        "div",
        { class: "columns even" },
        h("div", { class: "panel" }, field("Text", text), detected, before),
        h("div", { class: "panel" }, h("h2", {}, "Translation"), h("div", { "aria-live": "polite" }, after), h("div", { class: "row" }, copy), others),
      ),
    ];
  }

  async function ask(signal) {
    const input = text.value;
    if (!input.trim()) {
      frame.empty();
      return frame.clear();
    }
    const body = { model: frame.model.id, input, source: source.value, target: target.value, alignment: true };
    const withOthers = input.length < MANY ? { ...body, n_best: 4 } : body;
    const call = await post("translate", withOthers, signal).catch((error) => {
      if (error.param !== "n_best") throw error;
      return post("translate", body, signal); // the model has room for fewer
    });
    show(call.answer, input, body);
    frame.told("", call); // the translation is heard where it stands
  }

  function show(answer, input, { source: from, target: into }) {
    const { translations: [translation], alternatives, detected: [found] = [], alignment: [pairs] = [] } = answer;
    shown = { input, translation, source: from, target: into, detected: found?.language };
    detected.textContent = found ? `Taken for ${called(found.language)}.` : "";
    before.lang = tag(from === "auto" ? found?.language : from); // so that it is read out, and written, as its own
    text.lang = before.lang;
    after.lang = tag(into);
    const few = input.length < MANY ? (pairs ?? []) : [];
    before.replaceChildren(...words(input, few, "source"));
    after.replaceChildren(...words(translation, few, "target"));
    for (const each of settle) each();
    copy.hidden = !translation;
    const next = (alternatives?.[0] ?? []).filter((each) => each !== translation);
    others.replaceChildren(
      ...(answer.finish_reasons ? [h("p", { class: "soft" }, "Cut: it had no end when it was much longer than the text.")] : []),
      ...(next.length
        ? [h("h3", {}, "Or"), h("ul", { class: "plain" }, next.map((each) => h("li", { dir: "auto", lang: after.lang }, each)))]
        : []),
    );
  }

  return makeScreen("Translate", models, { build, ask });
}

// A text whose words light up together with their partners on the other side.
function words(text, pairs, side) {
  const all = characters(text);
  const found = new Map(); // by where a word stands, the pairs that it belongs to
  pairs.forEach((pair, number) => {
    const place = pair[side].join(" ");
    found.set(place, [...(found.get(place) ?? []), number]);
  });
  const places = [...found].map(([place, numbers]) => [...place.split(" ").map(Number), numbers]);
  places.sort((a, b) => a[0] - b[0]);
  const shown = [];
  let at = 0;
  for (const [start, end, numbers] of places) {
    if (start < at) continue;
    shown.push(all.slice(at, start).join(""), word(all.slice(start, end).join(""), numbers));
    at = end;
  }
  return [...shown, all.slice(at).join("")];
}

function word(text, numbers) {
  const light = (on) => () => {
    for (const each of document.querySelectorAll("[data-pairs]")) {
      const shared = each.dataset.pairs.split(" ").some((number) => numbers.includes(Number(number)));
      each.classList.toggle("lit", on && shared);
    }
  };
  const [enter, leave] = [light(true), light(false)];
  // No button element: in one the mouse selects no text.
  const on = { onclick: enter, onmouseenter: enter, onfocus: enter, onmouseleave: leave, onblur: leave };
  return h("span", { class: "pair", role: "button", "data-pairs": numbers.join(" "), ...on }, text);
}
