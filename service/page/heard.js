// What is said once to who listens: a whole answer, of which nobody could hear the tokens as they come.

import { h } from "./dom.js";

const HEARD_MS = 1000;

export function speaker() {
  const element = h("p", { class: "heard", "aria-live": "polite" });
  function say(text) {
    element.textContent = text;
    setTimeout(() => (element.textContent = ""), HEARD_MS); // it has been taken up, and is no second text to read or copy
  }
  return { element, say };
}
