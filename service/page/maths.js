// The little mathematics of maps and matrices.

export const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

export const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);

// Principal components of vectors: each one's place on the two axes along which they differ most.
// They are few and long, so the eigenvectors are those of their products with one another, by power iteration.
export function twoAxes(vectors) {
  const mean = vectors[0].map((_, index) => vectors.reduce((sum, vector) => sum + vector[index], 0) / vectors.length);
  const centred = vectors.map((vector) => vector.map((value, index) => value - mean[index]));
  const products = centred.map((a) => centred.map((b) => dot(a, b)));
  const first = eigenvector(products);
  const rest = products.map((row, i) => row.map((value, j) => value - first.value * first.vector[i] * first.vector[j]));
  const second = eigenvector(rest);
  return vectors.map((_, index) => [first, second].map(({ value, vector }) => vector[index] * Math.sqrt(value)));
}

function eigenvector(matrix) {
  let vector = matrix.map((_, index) => 1 + ((index * 7919) % 13) / 13); // any start that is not square to the answer
  let value = 0;
  for (let step = 0; step < 300; step += 1) {
    const next = matrix.map((row) => dot(row, vector));
    value = Math.sqrt(dot(next, next));
    if (value < 1e-12) return { value: 0, vector: vector.map(() => 0) };
    vector = next.map((each) => each / value);
  }
  return { value, vector };
}

// Half-precision numbers in base64, little-endian, as explanations have them.
export function halves(base64) {
  const bytes = atob(base64);
  const numbers = new Float32Array(bytes.length / 2);
  // By a loop: an explanation may have a million, of which iterators make a third of a second.
  for (let index = 0; index < numbers.length; index += 1) {
    numbers[index] = half(bytes.charCodeAt(2 * index) | (bytes.charCodeAt(2 * index + 1) << 8));
  }
  return numbers;
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = (bits & 0x3ff) / 1024;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
}
