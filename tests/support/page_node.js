"use strict";

// The part of a browser's document that the scripts of our pages use, for tests without a browser.

const assert = require("node:assert");

class Node {
  constructor(name, space) {
    Object.assign(this, {name, namespaceURI: space, attributes: {}, children: [], listeners: {},
      hidden: false});
  }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  getAttribute(key) { return this.attributes[key]; }
  removeAttribute(key) { delete this.attributes[key]; }
  append(...children) {
    for (const child of children) {
      assert(typeof child === "string" || child instanceof Node, `appended: ${child}`);
      this.children.push(child);
    }
  }
  prepend(...children) {
    const old = this.children;
    this.children = [];
    this.append(...children, ...old);
  }
  replaceChildren(...children) {
    this.children = [];
    this.append(...children);
  }
  addEventListener(name, call) { this.listeners[name] = call; }
  remove() { this.removed = true; }
  focus() {}
  get textContent() {
    return this.children.map((one) => typeof one === "string" ? one : one.textContent).join("");
  }
  set textContent(text) { this.children = [text]; }
  // All nodes below that pass the test.
  where(test) {
    return this.children.filter((one) => one instanceof Node)
      .flatMap((one) => [...test(one) ? [one] : [], ...one.where(test)]);
  }
  // All nodes below that have this name; "*": all.
  all(name) { return this.where((one) => name === "*" || one.name === name); }
  one(name) { return this.all(name)[0]; }
  withClass(name) {
    return this.where((one) => (one.attributes.class || "").split(" ").includes(name));
  }
  querySelectorAll(name) { return this.all(name); }
  cloneNode() {
    const copy = new Node(this.name, this.namespaceURI);
    Object.assign(copy.attributes, this.attributes);
    copy.append(...this.children.map((one) => one instanceof Node ? one.cloneNode() : one));
    return copy;
  }
  number(attribute) { return Number(this.attributes[attribute]); }
}

module.exports = {Node};
