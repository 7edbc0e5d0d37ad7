// A picture to be classified: dropped, chosen, pasted, or the drawing of trousers that is there at first.

import { h } from "../dom.js";

const TROUSERS =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABwAAAAcCAAAAABXZoBIAAAAKElEQVR42mNgwAMYYYwtSII+UJoJn85RSdpLIkcKnEM1O31GAx4dAACn5ALq/5sKnQAAAABJRU5ErkJggg==";

const LARGEST = 1_400_000; // bytes of a file: a body may have two millions, and writes it a third longer
const LONGEST_SIDE = 1024; // pixels, of what is larger

// A picture as a URL with all that is in it; a large one made smaller, as models look at few pixels. What the browser
// cannot draw is refused here, so that the picture before stays.
async function asData(file) {
  const bitmap = await createImageBitmap(file);
  if (file.size <= LARGEST) {
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
  }
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

export function picture(onchange) {
  let data = TROUSERS;
  const image = h("img", { src: data, alt: "The picture that is classified", width: 140, height: 140 });
  const file = h("input", { type: "file", accept: "image/*", id: "picture-file", onchange: () => take(file.files[0]) });

  const told = "This file is no picture that can be read; the one before stays.";
  const problem = h("p", { class: "problem", role: "alert", hidden: true }, told);

  let newest; // of the files; reading one may take longer than choosing another

  async function take(chosen) {
    if (!chosen) return;
    newest = chosen;
    const read = chosen.type.startsWith("image/") ? await asData(chosen).catch(() => null) : null;
    if (newest !== chosen) return;
    problem.hidden = read !== null;
    if (read === null) return;
    data = read;
    image.src = data;
    onchange();
  }

  const element = h(
    "div",
    {
      class: "drop",
      ondragover: (event) => {
        event.preventDefault();
        element.classList.add("over");
      },
      ondragleave: () => element.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        element.classList.remove("over");
        take(event.dataTransfer.files[0]);
      },
    },
    image,
    h("div", {}, h("label", { for: "picture-file" }, "Drop a picture here, paste one, or choose one"), file, problem),
  );
  document.addEventListener("paste", (event) => element.isConnected && take(event.clipboardData.files[0]));
  return { element, data: () => data, onmodel: () => (problem.hidden = true) };
}
