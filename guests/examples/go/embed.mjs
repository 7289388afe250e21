// Adds the type of the component to a module: embed.mjs JCO WIT WORLD MODULE OUTPUT
// The command `jco embed` does not find the interface's file; its library takes the text.

import { readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [jco, wit, world, module, output] = process.argv.slice(2);
const beside = createRequire(pathToFileURL(realpathSync(jco)));
const { componentEmbed } = await import(pathToFileURL(beside.resolve('@bytecodealliance/jco')));
writeFileSync(output, await componentEmbed({
  binary: readFileSync(module),
  witSource: readFileSync(wit, 'utf8'),
  world,
  stringEncoding: 'utf8',
}));
