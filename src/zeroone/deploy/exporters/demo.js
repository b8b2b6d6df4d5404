// The page around the network: takes a sample and shows bits and classes.
const network = readNetwork(JSON.parse(document.getElementById("network").textContent));
const byId = (id) => document.getElementById(id);
const [channels, height, width] = network.image.length ? network.image : [0, 0, 0];
const layouts = network.stages.slice(0, -1).map((stage) => layOutBits(stage.out));

/** Convert grey levels 0..255 to what the network takes. */
function fromBytes(bytes) {
  if (!network.low) return bytes;
  let [low, high] = [Infinity, -Infinity];
  network.low.forEach((l, j) => {
    low = Math.min(low, l);
    high = Math.max(high, l + 255 / network.rate[j]);
  });
  return Float32Array.from(bytes, (b) => low + (b / 255) * (high - low));
}

/** Make numbers sum to 1. */
function toShares(values) {
  const total = values.reduce((a, b) => a + b, 0);
  return values.map((value) => value / total);
}

/** Undo the smoothing of the labels in training, as SoftmaxCE.probabilities does. */
function unsmooth(share) {
  const s = network.smoothing;
  return Math.max((share - s / network.classes.length) / (1 - s), s * share);
}

function show(sample) {
  const { scores, bits } = run(network, sample);
  const largest = Math.max(...scores);
  const soft = (s) => Math.exp((s - largest) * network.unit);
  const hard = (s) => (s === largest ? 1 : 0); // leading classes share it
  const shares = network.head === "softmax"
    ? toShares(toShares(Array.from(scores, soft)).map(unsmooth))
    : toShares(Array.from(scores, hard));
  const best = scores.indexOf(largest);
  byId("answer").textContent = network.classes[best];
  [...byId("classes").children].forEach((row, j) => {
    const share = shares[j];
    row.classList.toggle("leads", j === best);
    row.querySelector(".bar span").style.width = `${100 * share}%`;
    row.querySelector(".share").textContent = `${(100 * share).toFixed(1)}%`;
  });
  bits.forEach(showBits);
}

/** Lay out a layer's bits: a map for each filter, with gaps between them; a pixel for each unit. */
function layOutBits([units, rows = 1, columns = 1]) {
  const gap = rows * columns > 1 ? 1 : 0;
  const [high, wide] = [rows + gap, columns + gap];
  const across = Math.min(units, Math.ceil(Math.sqrt((2 * units * high) / wide)));
  const down = Math.ceil(units / across);
  const place = (i) => {
    const unit = Math.floor(i / (rows * columns));
    return [(unit % across) * wide + (i % columns), Math.floor(unit / across) * high + (Math.floor(i / columns) % rows)];
  };
  const name = gap ? `, ${units} maps of ${columns} × ${rows}` : "";
  return { width: across * wide - gap, height: down * high - gap, place, name };
}

function showBits(bits, k) {
  const { width, height, place, name } = layouts[k];
  const figure = byId("bits").children[k];
  const context = figure.querySelector("canvas").getContext("2d");
  const image = context.createImageData(width, height);
  const style = getComputedStyle(document.body);
  const [off, on] = [style.backgroundColor, style.color].map((c) => [...c.match(/\d+/g).slice(0, 3).map(Number), 255]);
  bits.forEach((bit, i) => {
    const [x, y] = place(i);
    image.data.set(bit ? on : off, 4 * (y * width + x));
  });
  context.putImageData(image, 0, 0);
  const ones = bits.reduce((a, b) => a + b, 0);
  figure.querySelector("figcaption").textContent = `layer ${k + 1}${name}: ${ones} of ${bits.length} bits are 1`;
}

function layOut() {
  for (const label of network.classes) {
    const row = document.createElement("li");
    row.innerHTML = '<span class="label"></span><span class="bar"><span></span></span><span class="share"></span>';
    row.querySelector(".label").textContent = label;
    byId("classes").append(row);
  }
  for (const { width, height } of layouts) {
    const figure = document.createElement("figure");
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    figure.append(canvas, document.createElement("figcaption"));
    byId("bits").append(figure);
  }
}

/** Find the size and the centre of mass of the ink in grey levels; null if there is none. */
function inkOf(grey, w, h) {
  let [left, right, top, bottom, mass, mx, my] = [w, -1, h, -1, 0, 0, 0];
  for (let y = 0; y < h; y++) {
    for (let x = 0; x < w; x++) {
      const ink = grey[y * w + x];
      if (ink < 32) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      mass += ink;
      mx += ink * x;
      my += ink * y;
    }
  }
  return mass ? { size: Math.max(right - left, bottom - top) + 1, mx: mx / mass, my: my / mass } : null;
}

/** Read the pixels of a canvas as planes of bytes: brightness, or red, green and blue. */
function planesOf(canvas) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const n = canvas.width * canvas.height;
  const planes = new Uint8Array(channels * n);
  const invert = byId("invert")?.checked;
  for (let i = 0; i < n; i++) {
    const [r, g, b] = pixels.subarray(4 * i, 4 * i + 3);
    if (channels === 1) {
      const grey = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
      planes[i] = invert ? 255 - grey : grey;
    } else {
      planes.set([r], i);
      planes.set([g], n + i);
      planes.set([b], 2 * n + i);
    }
  }
  return planes;
}

/** Create a black canvas of this size. */
function blank(w, h) {
  const canvas = Object.assign(document.createElement("canvas"), { width: w, height: h });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillRect(0, 0, w, h);
  return canvas;
}

/**
 * Convert a picture to what the network sees: unchanged if it has the network's size, else scaled,
 * or with its ink centred and 20/28 of the side large, as in MNIST.
 */
function look(picture) {
  const view = blank(width, height);
  const context = view.getContext("2d");
  const centred = byId("centre")?.checked;
  const sameSize = picture.width === width && picture.height === height;
  const ink = centred && !sameSize ? inkOf(planesOf(picture), picture.width, picture.height) : null;
  if (ink) {
    const scale = ((20 / 28) * Math.min(width, height)) / ink.size;
    const [x, y] = [width / 2 - (ink.mx + 0.5) * scale, height / 2 - (ink.my + 0.5) * scale];
    if (byId("invert")?.checked) {
      context.fillStyle = "#fff";
      context.fillRect(0, 0, width, height);
    }
    context.drawImage(picture, x, y, picture.width * scale, picture.height * scale);
  } else {
    context.drawImage(picture, 0, 0, width, height);
  }
  const bytes = planesOf(view);
  showSeen(bytes);
  show(fromBytes(bytes));
  if (!bytes.some((b) => b > 0)) byId("answer").textContent = "";
}

function showSeen(bytes) {
  const context = byId("seen").getContext("2d");
  const image = context.createImageData(width, height);
  const n = width * height;
  for (let i = 0; i < n; i++) {
    const colour = [0, 1, 2].map((c) => bytes[(channels === 1 ? 0 : c) * n + i]);
    image.data.set([...colour, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

/** Fit a picture into the shape of the pad without stretching it. */
function fitted(image, pad) {
  if (image.width === width && image.height === height) {
    const same = blank(width, height);
    same.getContext("2d").drawImage(image, 0, 0);
    return same;
  }
  const canvas = blank(pad.width, pad.height);
  const scale = Math.min(pad.width / image.width, pad.height / image.height);
  const [w, h] = [image.width * scale, image.height * scale];
  const context = canvas.getContext("2d");
  if (byId("invert")?.checked) {
    context.fillStyle = "#fff";
    context.fillRect(0, 0, pad.width, pad.height);
  }
  context.drawImage(image, (pad.width - w) / 2, (pad.height - h) / 2, w, h);
  return canvas;
}

/** Tell whether the corners of an image are bright, as with ink on paper. */
function isPaper(image) {
  const small = blank(16, 16);
  small.getContext("2d").drawImage(image, 0, 0, 16, 16);
  const pixels = small.getContext("2d").getImageData(0, 0, 16, 16).data;
  return [0, 15, 240, 255].every((i) => pixels[4 * i] + pixels[4 * i + 1] + pixels[4 * i + 2] > 450);
}

function usePad() {
  const pad = byId("pad");
  const context = pad.getContext("2d", { willReadFrequently: true });
  let picture = pad; // the pad, or an image that was opened
  const put = (source) => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, pad.width, pad.height);
    if (source) context.drawImage(source, 0, 0, pad.width, pad.height);
    picture = source || pad;
    byId("note").textContent = "";
    look(picture);
  };
  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [((event.clientX - box.left) * pad.width) / box.width, ((event.clientY - box.top) * pad.height) / box.height];
  };
  let last = null;
  const draw = (event) => {
    const [x, y] = at(event);
    context.strokeStyle = byId("invert")?.checked ? "#000" : "#fff";
    context.lineWidth = pad.width / 14;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...(last || [x, y]));
    context.lineTo(x + 0.01, y);
    context.stroke();
    last = [x, y];
    picture = pad;
    look(pad);
  };
  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
  });
  pad.addEventListener("pointermove", (event) => event.buttons && last && draw(event));
  for (const kind of ["pointerup", "pointercancel"]) pad.addEventListener(kind, () => (last = null));
  byId("clear").addEventListener("click", () => {
    if (byId("invert")) byId("invert").checked = false;
    put(null);
  });
  for (const id of ["centre", "invert"]) byId(id)?.addEventListener("change", () => look(picture));
  const open = async (file) => {
    if (!file) return;
    try {
      const image = await createImageBitmap(file);
      if (byId("invert")) byId("invert").checked = isPaper(image);
      put(fitted(image, pad));
    } catch {
      byId("note").textContent = `${file.name} cannot be read as an image.`;
    }
  };
  byId("file").addEventListener("change", async (event) => {
    await open(event.target.files[0]);
    event.target.value = ""; // allows opening the same file again
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      pad.classList.toggle("over", kind === "dragover");
      if (kind === "drop") open(event.dataTransfer.files[0]);
    });
  }
  put(null);
}

function useFields() {
  const fields = [];
  for (let j = 0; j < network.nFeatures; j++) {
    const label = document.createElement("label");
    const field = Object.assign(document.createElement("input"), { type: "number", step: "any", value: 0 });
    const place = network.taken ? network.taken.indexOf(j) : j;
    if (!network.low) Object.assign(field, { min: 0, max: 255, step: 1 });
    else if (place >= 0) field.value = (network.low[place] + 127.5 / network.rate[place]).toPrecision(4);
    label.append(network.names ? network.names[j] : `input ${j}`, field);
    byId("fields").append(label);
    fields.push(field);
  }
  const update = () => {
    if (fields.every((field) => field.checkValidity() && field.value !== "")) {
      show(fields.map((field) => Number(field.value)));
    } else {
      byId("answer").textContent = "";
    }
  };
  byId("fields").addEventListener("input", update);
  update();
}

layOut();
if (network.image.length) usePad();
else useFields();
