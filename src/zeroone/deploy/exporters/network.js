"use strict";
// Runs the integer form of a 0/1 network, as the numpy reference defines it.

/** Decode base64 text to numbers of 1 or 4 bytes, little-endian on every machine. */
function decodeNumbers(text, kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  if (kind === "int8") return new Int8Array(bytes.buffer);
  const view = new DataView(bytes.buffer);
  const numbers = kind === "int32" ? new Int32Array(raw.length / 4) : new Float32Array(raw.length / 4);
  for (let i = 0; i < numbers.length; i++) {
    numbers[i] = kind === "int32" ? view.getInt32(4 * i, true) : view.getFloat32(4 * i, true);
  }
  return numbers;
}

/** Decode what zeroone wrote. */
function readNetwork(data) {
  return {
    ...data,
    taken: data.taken && decodeNumbers(data.taken, "int32"),
    low: data.low && decodeNumbers(data.low, "float32"),
    rate: data.rate && decodeNumbers(data.rate, "float32"),
    stages: data.stages.map((stage) => ({
      ...stage,
      main: { ...stage.main, weights: decodeNumbers(stage.main.weights, "int8") },
      thresholds: decodeNumbers(stage.thresholds, "int32"),
    })),
  };
}

/** Convert a sample of raw numbers to bytes. */
function asBytes(network, sample) {
  const n = network.taken ? network.taken.length : network.nFeatures;
  const bytes = new Uint8Array(n);
  for (let j = 0; j < n; j++) {
    const x = sample[network.taken ? network.taken[j] : j];
    if (!network.low) {
      bytes[j] = x >> network.shift;
      continue;
    }
    // Each operation is rounded to 32 bits.
    const moved = Math.fround(Math.fround(x) - network.low[j]);
    const q = Math.floor(Math.fround(Math.fround(moved * network.rate[j]) + 0.5));
    bytes[j] = Math.min(255, Math.max(0, q));
  }
  return bytes;
}

/** Add the weights of each input that is not 0, times the input (a bit is 1). */
function addDense(map, V, sums) {
  const { weights, units } = map;
  for (let i = 0; i < V.length; i++) {
    const v = V[i];
    if (v === 0) continue;
    const start = i * units;
    for (let j = 0; j < units; j++) sums[j] += v * weights[start + j];
  }
}

/** Add the same for what one window of a convolution sees. */
function addWindow(map, V, y, x, sums) {
  const { weights, units, kernel, stride, padding } = map;
  const [channels, height, width] = map.shape_in;
  let place = 0;
  for (let c = 0; c < channels; c++) {
    for (let ky = 0; ky < kernel; ky++) {
      const row = y * stride - padding + ky;
      for (let kx = 0; kx < kernel; kx++, place += units) {
        const column = x * stride - padding + kx;
        if (row < 0 || row >= height || column < 0 || column >= width) continue;
        const v = V[(c * height + row) * width + column];
        if (v === 0) continue;
        for (let j = 0; j < units; j++) sums[j] += v * weights[place + j];
      }
    }
  }
}

/** Add the sums of the layer below at one place, as often as there are times more units. */
function addStream(below, places, place, sums) {
  for (let j = 0; j < sums.length; j++) sums[j] += below[(j * places + place) % below.length];
}

/**
 * Compute the bits of a layer of images, and its sums after max pooling. Thresholds come in the
 * order of comparison. In a stream, "below" has the sums of the layer below.
 */
function imageBits(stage, V, below) {
  const { main, window: size, pool } = stage;
  const [maps, rows, columns] = stage.out; // of bits: each unit has one or several
  const [units, height, width] = stage.sums; // before pooling
  const bits = new Uint8Array(maps * rows * columns);
  const largest = new Int32Array(units * rows * columns).fill(-(2 ** 31));
  const sums = new Int32Array(units);
  const byPosition = stage.thresholds.length > maps;
  let limit = 0;
  const compare = (position) => {
    for (let j = 0; j < maps; j++) {
      if (sums[j % units] > stage.thresholds[limit + j]) bits[j * rows * columns + position] = 1;
    }
    if (byPosition) limit += maps;
  };
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      sums.fill(0);
      for (let k = 0; k < size * size; k++) {
        if (pool === "max") sums.fill(0);
        const [top, left] = [y * size + Math.floor(k / size), x * size + (k % size)];
        addWindow(main, V, top, left, sums);
        if (stage.stream) addStream(below, height * width, top * width + left, sums);
        for (let j = 0, at = y * columns + x; j < units; j++, at += rows * columns) {
          largest[at] = Math.max(largest[at], sums[j]);
        }
        if (pool === "max") compare(y * columns + x);
      }
      if (pool !== "max") compare(y * columns + x);
    }
  }
  return { bits, sums: largest };
}

/** Compute the scores of a sample of raw numbers, and the bits of every hidden layer. */
function run(network, sample) {
  const V = [asBytes(network, sample)];
  let sums = null; // of the last layer
  for (const stage of network.stages.slice(0, -1)) {
    const below = V[V.length - 1];
    if (stage.main.kernel) {
      const made = imageBits(stage, below, sums);
      V.push(made.bits);
      sums = made.sums;
      continue;
    }
    const own = new Int32Array(stage.main.units);
    addDense(stage.main, below, own);
    if (stage.stream) addStream(sums, 1, 0, own);
    V.push(Uint8Array.from(stage.thresholds, (limit, j) => (own[j % own.length] > limit ? 1 : 0)));
    sums = own;
  }
  const last = network.stages[network.stages.length - 1];
  const scores = new Int32Array(last.main.units);
  addDense(last.main, V[V.length - 1], scores);
  for (let j = 0; j < scores.length; j++) scores[j] += last.thresholds[j];
  return { scores, bits: V.slice(1) };
}
