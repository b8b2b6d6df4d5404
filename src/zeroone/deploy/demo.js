// The page around the network: what comes in, what is shown.
const network = readNetwork(JSON.parse(document.getElementById("network").textContent));
const byId = (id) => document.getElementById(id);
const [channels, height, width] = network.image || [0, 0, 0];

/** From grey levels 0..255 to what the network takes. */
function fromBytes(bytes) {
  if (!network.low) return bytes;
  const low = Math.min(...network.low);
  const high = Math.max(...network.low.map((l, j) => l + 255 / network.rate[j]));
  return Float32Array.from(bytes, (b) => low + (b / 255) * (high - low));
}

function show(sample) {
  const { scores, bits } = run(network, sample);
  const largest = Math.max(...scores);
  const weights = Array.from(scores, (s) => Math.exp((s - largest) * network.unit));
  const total = weights.reduce((a, b) => a + b, 0);
  const best = scores.indexOf(largest);
  byId("answer").textContent = network.classes[best];
  [...byId("classes").children].forEach((row, j) => {
    const share = weights[j] / total;
    row.classList.toggle("leads", j === best);
    row.querySelector(".bar span").style.width = `${100 * share}%`;
    row.querySelector(".share").textContent = `${(100 * share).toFixed(1)}%`;
  });
  bits.forEach(showBits);
}

function showBits(bits, k) {
  const figure = byId("bits").children[k];
  const canvas = figure.querySelector("canvas");
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const colour = getComputedStyle(document.body).color.match(/\d+/g).map(Number);
  for (let i = 0; i < bits.length; i++) image.data.set([...colour.slice(0, 3), bits[i] ? 255 : 0], 4 * i);
  context.putImageData(image, 0, 0);
  const on = bits.reduce((a, b) => a + b, 0);
  figure.querySelector("figcaption").textContent = `layer ${k + 1}: ${on} of ${bits.length} bits are 1`;
}

function layOut() {
  for (const label of network.classes) {
    const row = document.createElement("li");
    row.innerHTML = '<span class="label"></span><span class="bar"><span></span></span><span class="share"></span>';
    row.querySelector(".label").textContent = label;
    byId("classes").append(row);
  }
  for (const stage of network.stages.slice(0, -1)) {
    const count = stage.out.reduce((a, b) => a * b, 1);
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(Math.sqrt(2 * count));
    canvas.height = Math.ceil(count / canvas.width);
    figure.append(canvas, document.createElement("figcaption"));
    byId("bits").append(figure);
  }
}

/** Where the ink of grey levels is: its edges and its centre of mass; null if there is none. */
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
  return mass ? { left, top, size: Math.max(right - left, bottom - top) + 1, mx: mx / mass, my: my / mass } : null;
}

/** The pad at the network's size: as it is, or its ink in the middle, 20/28 of the side large. */
function look(pad) {
  const seen = byId("seen");
  const context = seen.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#000";
  context.fillRect(0, 0, width, height);
  const ink = byId("centre")?.checked ? inkOf(greyOf(pad), pad.width, pad.height) : null;
  if (ink) {
    const scale = ((20 / 28) * Math.min(width, height)) / ink.size;
    const [x, y] = [width / 2 - (ink.mx + 0.5) * scale, height / 2 - (ink.my + 0.5) * scale];
    context.drawImage(pad, x, y, pad.width * scale, pad.height * scale);
  } else {
    context.drawImage(pad, 0, 0, width, height);
  }
  const pixels = context.getImageData(0, 0, width, height).data;
  const bytes = new Uint8Array(channels * width * height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < channels; c++) bytes[c * width * height + i] = pixels[4 * i + (channels === 1 ? 0 : c)];
  }
  show(fromBytes(bytes));
}

function greyOf(canvas) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return Uint8Array.from({ length: canvas.width * canvas.height }, (_, i) => pixels[4 * i]);
}

function usePad() {
  const pad = byId("pad");
  const context = pad.getContext("2d", { willReadFrequently: true });
  const clear = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, pad.width, pad.height);
    look(pad);
  };
  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [((event.clientX - box.left) * pad.width) / box.width, ((event.clientY - box.top) * pad.height) / box.height];
  };
  let last = null;
  const draw = (event) => {
    const [x, y] = at(event);
    context.strokeStyle = "#fff";
    context.lineWidth = pad.width / 14;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...(last || [x, y]));
    context.lineTo(x + 0.01, y);
    context.stroke();
    last = [x, y];
    look(pad);
  };
  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    last = null;
    draw(event);
  });
  pad.addEventListener("pointermove", (event) => event.buttons && draw(event));
  byId("clear").addEventListener("click", clear);
  byId("centre")?.addEventListener("change", () => look(pad));
  const open = async (file) => {
    if (!file || !file.type.startsWith("image/")) return;
    const image = await createImageBitmap(file);
    context.filter = channels === 1 ? "grayscale(1)" : "none";
    context.drawImage(image, 0, 0, pad.width, pad.height);
    context.filter = "none";
    look(pad);
  };
  byId("file").addEventListener("change", (event) => open(event.target.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      pad.classList.toggle("over", kind === "dragover");
      if (kind === "drop") open(event.dataTransfer.files[0]);
    });
  }
  clear();
}

function useFields() {
  const fields = [];
  for (let j = 0; j < network.nFeatures; j++) {
    const label = document.createElement("label");
    const field = Object.assign(document.createElement("input"), { type: "number", step: "any", value: 0 });
    const place = network.taken ? network.taken.indexOf(j) : j;
    if (network.low && place >= 0) field.value = (network.low[place] + 127.5 / network.rate[place]).toPrecision(4);
    label.append(network.names ? network.names[j] : `input ${j}`, field);
    byId("fields").append(label);
    fields.push(field);
  }
  const update = () => show(fields.map((field) => Number(field.value)));
  byId("fields").addEventListener("input", update);
  update();
}

layOut();
if (network.image) usePad();
else useFields();
