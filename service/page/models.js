// The models, asked for as soon as this module is there: before the page's other modules are.

import { get } from "./api.js";

export const models = get("v1/models").then(async (response) => (await response.json()).data);
models.catch(() => {}); // whoever awaits it is told
