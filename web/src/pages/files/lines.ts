// What to type to open a file with the programs of the field.

export interface Lines {
  program: string;
  note: string;
  text: string;
}

const shell = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** `PREFIX_master.h5` without the end; null for files of other layouts. */
function prefixOf(master: string): string | null {
  return /^(.+)_master\.h5$/.exec(master)?.[1] ?? null;
}

/** Lines for one master file with so many images. */
export function linesFor(master: string, images: number): Lines[] {
  const prefix = prefixOf(master);
  const name = (prefix ?? master.replace(/\.[^./]+$/, "")).split("/").at(-1) ?? master;
  const lines: Lines[] = [
    {
      program: "DIALS",
      note: "HDF5_PLUGIN_PATH must name the HDF5 plugins (python -c 'import hdf5plugin; print(hdf5plugin.PLUGIN_PATH)').",
      text: `dials.import ${shell(master)}\ndials.find_spots imported.expt\n`,
    },
  ];
  if (prefix !== null) {
    lines.push({
      program: "XDS",
      note: "For XDS.INP. XDS reads bslz4 and lz4 only, and misreads other pixel types than uint32 (konkordia check says so).",
      text: `LIB=/path/to/dectris-neggia.so\nNAME_TEMPLATE_OF_DATA_FRAMES=${prefix}_??????.h5\nDATA_RANGE=1 ${images}\n`,
    });
  }
  lines.push({
    program: "CrystFEL",
    note: "Takes the spots that were found while measuring, if images were analysed; without them leave out --peaks and --no-revalidate.",
    text: [
      `konkordia inspect ${shell(master)} --geom ${shell(`${name}.geom`)}`,
      `echo ${shell(master)} > ${shell(`${name}.lst`)}`,
      `indexamajig -i ${shell(`${name}.lst`)} -g ${shell(`${name}.geom`)} -o ${shell(`${name}.stream`)} --peaks=cxi --no-revalidate --indexing=xgandalf`,
      "",
    ].join("\n"),
  });
  return lines;
}
