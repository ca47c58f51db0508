"""Read medical images: DICOM and NIfTI files of a folder as examples of one geometry."""
