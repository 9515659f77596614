// Pages that are opened as files may start no workers: their search runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${new URL(address, document.baseURI)}"></script>`;
      this.ready = new Promise(resolve => frame.addEventListener("load", () => {
        frame.contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
        resolve(frame.contentWindow);
      }));
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.ready.then(worker => worker.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
