// Numbers that a person gives.

import { Refused } from "./api.js";

// The number in an input, which is `initial` again where it was emptied. One that the server would refuse is refused at
// once, in words of the screen.
export function numberIn(input, initial) {
  const { badInput, rangeUnderflow, rangeOverflow, stepMismatch } = input.validity;
  const isWhole = Number.isInteger(Number(input.step || 1)); // other steps are only what the arrows do
  const isAbove = "above" in input.dataset; // the least itself is out of bounds, which HTML cannot say
  const isLeast = isAbove && input.value !== "" && Number(input.value) === Number(input.min);
  if (badInput || isLeast || rangeUnderflow || rangeOverflow || (stepMismatch && isWhole)) {
    const within = isAbove ? `above ${input.min} and at most ${input.max}` : `from ${input.min} to ${input.max}`;
    const bounds = input.max ? within : `of at least ${input.min}`;
    const refused = new Refused(`choose a ${isWhole ? "whole " : ""}number ${bounds}`);
    throw Object.assign(refused, { control: input });
  }
  input.value ||= initial;
  return Number(input.value);
}
