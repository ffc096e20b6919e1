// Draws the diagrams: mdBook leaves a block in the language `mermaid` as code.
for (const code of document.querySelectorAll("code.language-mermaid")) {
    const diagram = document.createElement("pre");
    diagram.className = "mermaid";
    diagram.textContent = code.textContent;
    code.parentElement.replaceWith(diagram);
}
mermaid.initialize({ startOnLoad: false });
mermaid.run();
