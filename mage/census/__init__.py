"""What the compiler chose: PTX and SASS of every kernel, counted for a named GPU. Nothing runs, no GPU is needed.

    counting        the census itself, one row a kernel: ``mage.count_code``
    describe        one compiled kernel as a row: its columns and what they mean
    offline         compiles every kernel for a named GPU
    compile_pool    rows from the disk, else from compilers in processes of their own
    ptx             counts in PTX, what a front end hands to the assembler
    sass            counts in SASS, what runs
    occupancy       blocks that a multiprocessor can hold, from a kernel's resource request
    baseline        the committed census, and what has moved since
    command         ``python -m mage census`` and ``python -m mage tile-compilers``
    tile_census     cuTile's matrix product: assembler releases × tile shapes × GPUs
    tile_releases   other releases of cuTile's assembler, installed apart
    tile_fetch      who fetches a tile: the tensor memory accelerator or threads
    tile_limits     limits of the tile model, tried out on the compiler at hand
"""
