// The page: asks which models there are, and shows the screens that they can fill.

import { correct, here } from "./address.js";
import { hasKey, onKeyNeeded, wordsOf } from "./api.js";
import { field, h } from "./dom.js";
import { startLive } from "./live.js";
import { askModels, models as asked } from "./models.js";

const RETRY_S = 5; // where the server does not say after how long it may be asked again

const answers = (task) => (model) => model.tasks.includes(task);

// Whether a model can be asked about one text. A ranker that does not classify as well reads query and document as one.
const readsTexts = (model) => !model.image_size && (model.task !== "rerank" || model.tasks.includes("classify"));

// In the order of the three families; a screen's module is fetched when it is first opened.
const SCREENS = [
  { id: "classify", title: "Classify", family: "Encoders", fits: answers("classify") },
  { id: "embed", title: "Embed", family: "Encoders", fits: answers("embed") },
  { id: "words", title: "Words", family: "Encoders", fits: answers("embed_sparse") },
  { id: "rerank", title: "Rerank", family: "Encoders", fits: answers("rerank") },
  { id: "tag", title: "Tag", family: "Encoders", fits: answers("tag") },
  { id: "answer", title: "Answer", family: "Encoders", fits: answers("answer") },
  { id: "fill", title: "Fill", family: "Encoders", fits: answers("fill") },
  { id: "generate", title: "Generate", family: "Decoders", fits: answers("generate") },
  { id: "chat", title: "Chat", family: "Decoders", fits: (model) => model.chat },
  { id: "summarize", title: "Summarize", family: "Encoder–decoders", fits: answers("summarize") },
  { id: "translate", title: "Translate", family: "Encoder–decoders", fits: answers("translate") },
  { id: "inside", title: "Inside", family: "All of them", fits: readsTexts },
];

const main = document.getElementById("main");
const nav = document.getElementById("screens");

// By hand: the address names the screen, and #main would take its place.
document.querySelector("a.skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

onKeyNeeded((give, isWrong) => {
  const input = h("input", { type: "password", autocomplete: "off", required: true, "aria-invalid": isWrong && "true" });
  const isTyping = document.activeElement?.matches("input, select, textarea"); // it is told, and takes no keys
  const label = isWrong ? "The server does not know this key; try another" : "This server asks for an API key";
  const form = h(
    "form",
    {
      class: "key",
      role: isTyping || isWrong ? "alert" : null,
      onsubmit: (event) => {
        event.preventDefault();
        form.remove();
        main.focus({ preventScroll: true });
        give(input.value.trim());
      },
    },
    field(label, input),
    h("button", {}, "Use it in this tab"),
  );
  document.querySelector("footer").hidden = true; // its pages could not be opened without the key
  main.prepend(form);
  if (!isTyping) input.focus();
});

function links(screens) {
  const families = Map.groupBy(screens, (screen) => screen.family);
  return [...families].map(([family, members]) =>
    h(
      "div",
      { class: "family", "data-family": family },
      h("h2", {}, family),
      h("ul", {}, members.map(({ id, title }) => h("li", {}, h("a", { href: `#/${id}` }, title)))),
    ),
  );
}

// Puts something in the place of the screen that is shown. A question for the key stays, and is not moved: it would lose
// the focus.
function show(element) {
  [...main.children].forEach((each) => each.matches("form.key") || each.remove());
  main.append(element);
}
const tell = (problem) => show(h("p", { class: "problem", role: "alert" }, problem));

show(h("p", { class: "soft asking", role: "status" }, "Asking which models there are …"));

// The link of the screen that is shown leads nowhere: its address, without a model, would be one more to go back by.
nav.addEventListener("click", (event) => {
  if (!event.target.closest("a[aria-current]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  main.focus({ preventScroll: true });
});

const leave = () => nav.querySelectorAll("[aria-current]").forEach((link) => link.removeAttribute("aria-current"));

// What a screen's models can do, and one of them.
const ABLE = {
  classify: ["sort texts by label", "sentiment"],
  embed: ["map texts to vectors", "embed"],
  words: ["weigh the words of a text", "a SPLADE model"],
  rerank: ["sort documents", "embed"],
  tag: ["mark entities", "entities"],
  answer: ["find answers in a text", "answers"],
  fill: ["fill in words", "google-bert/bert-base-uncased"],
  generate: ["continue a text", "stories"],
  chat: ["hold a conversation", "stories"],
  summarize: ["summarize", "facebook/bart-large-cnn"],
  translate: ["translate", "translate"],
  inside: ["be looked into", "sentiment"],
};

function tellMissing({ id, title }) {
  const [does, example] = ABLE[id];
  leave();
  document.title = `${title} · Trifold`;
  const how = `One that can is ${example}: start the server with it and those it has, as “trifold serve MODEL MODEL …”.`;
  const told = h("p", { class: "problem", role: "alert" }, `No model here can ${does}. ${how}`);
  show(h("article", { class: "screen" }, h("h1", {}, title), told));
}

function router(screens) {
  const opened = new Map(); // a screen keeps its texts while another is shown
  return async (event) => {
    const { screen: wanted } = here();
    const known = SCREENS.find(({ id }) => id === wanted);
    if (known && !screens.some(({ id }) => id === wanted)) return tellMissing(known);
    const screen = screens.find(({ id }) => id === wanted) ?? screens[0];
    if (screen.id !== wanted) correct(screen.id, here().model);
    const link = nav.querySelector(`a[href="#/${screen.id}"]`);
    leave();
    link.setAttribute("aria-current", "page");
    const isWanted = () => link.getAttribute("aria-current") === "page";
    document.title = `${screen.title} · Trifold`;
    if (!opened.has(screen.id)) {
      const { open } = await import(`./screens/${screen.id}.js`).catch((error) => {
        console.error(error);
        return {};
      });
      if (!open) return isWanted() && tell(`The screen ${screen.title} could not be loaded. Reload the page to try again.`);
      if (!opened.has(screen.id)) opened.set(screen.id, open(screen.models)); // two clicks may have asked for it
      if (!isWanted()) return; // another screen is asked for by now
    }
    main.dataset.family = screen.family;
    show(opened.get(screen.id));
    dispatchEvent(new Event("shown"));
    // Not by scrollIntoView, behind which the keyboard would go on: the first Tab is to reach what skips the navigation.
    const current = nav.querySelector("[aria-current]");
    if (current) nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
    if (event) main.focus({ preventScroll: true });
  };
}

// A server that restarts answers after a while.
async function untilAnswered(models) {
  for (;;) {
    try {
      return await models;
    } catch (error) {
      const words = `${wordsOf(error)}.`;
      if (main.querySelector(".problem")?.textContent !== words) tell(words); // the same is told once
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.retryAfter || RETRY_S)));
      models = askModels();
    }
  }
}

async function start() {
  const models = await untilAnswered(asked);
  // Models of a screen's own task come before those that answer it as well, as where a request names none.
  const fitting = ({ id, fits }) => models.filter(fits).sort((a, b) => (b.task === id) - (a.task === id));
  const screens = SCREENS.filter(({ fits }) => models.some(fits)).map((each) => ({ ...each, models: fitting(each) }));
  if (!screens.length) return tell("No models are served.");
  nav.replaceChildren(...links(screens));
  const route = router(screens);
  addEventListener("hashchange", route);
  document.querySelector("footer").hidden = hasKey();
  await route();
  startLive(document.getElementById("live"), models);
}

start().catch((error) => tell(`${wordsOf(error)}.`));
