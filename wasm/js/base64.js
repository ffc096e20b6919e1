/** Returns the bytes that a text in base64 encodes. */
export function decodeBase64(text) {
    // Browsers have this method since 2025, Node since version 25.
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const characters = atob(text);
    const bytes = new Uint8Array(characters.length);
    for (let index = 0; index < bytes.length; index += 1) bytes[index] = characters.charCodeAt(index);
    return bytes;
}
