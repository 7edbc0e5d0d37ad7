// The models, asked for as soon as this module is there: before the page's other modules are.

import { get } from "./api.js";

export const askModels = async () => (await get("v1/models")).data;
export const models = askModels();
models.catch(() => {}); // whoever awaits it is told
