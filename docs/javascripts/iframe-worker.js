// The search runs in a worker, which browsers refuse to pages that come from a folder (file://). There a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write(`<body><script>
        postMessage = message => parent.postMessage(message, "*")
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(resolve => {
          const script = document.createElement("script")
          script.src = url
          script.onload = resolve
          document.body.append(script)
        })), Promise.resolve())
      </` + `script><script src="${url}"></` + "script></body>")
      inside.document.close()
      this.ready = new Promise(resolve => { inside.onload = resolve })
      this.listen = event => {
        if (event.source !== inside) return
        const message = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      }
      addEventListener("message", this.listen)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }

    terminate() {
      removeEventListener("message", this.listen)
      this.frame.remove()
    }
  }
}
