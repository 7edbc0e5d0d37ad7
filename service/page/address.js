// The address names the screen and its model, as in #/classify?model=spam, so that both can be kept and sent on.

let last = null; // the model that was chosen last, on whatever screen
const SEEN = "seen"; // with an address of the history: a screen has been shown at it

export function here() {
  const [path, query] = location.hash.slice(1).split("?");
  return { screen: path.replace(/^\//, ""), model: new URLSearchParams(query).get("model") };
}

// In place of the address that is there: a correction is no step to go back by.
export function correct(screen, model = null) {
  const query = model === null ? "" : `?${new URLSearchParams({ model })}`;
  history.replaceState(SEEN, "", `#/${screen}${query}`);
}

// Whether the address was given just now, and is not gone back to.
export const isNew = () => history.state !== SEEN;

export function chosen(model) {
  last = model;
  correct(here().screen, model);
}

// The model that the address names, or that was chosen last, where it is one of these.
export function preferred(models) {
  const find = (wanted) => models.find(({ id }) => id === wanted);
  return find(here().model) ?? find(last) ?? models[0];
}
