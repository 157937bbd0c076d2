// Definitions of other projects' kinds, which clusters have where those are installed. Nothing is compiled: the files of
// the modules are copied. go.sum pins what is in them.
module slipway.invalid/sandbox/definitions

go 1.25.0
