"""What a cell shows, and what tables and figures are made with.

    display     a table, a figure or prose as HTML that needs no script and no network
    selection   which rows of evidence a reader asked for, in one order
    palette     one palette: colours, markers, dashes, and the names beside them
    rounding    numbers as text, rounded half up in decimal arithmetic
    images      a matplotlib Figure as bytes: SVG, PNG
    svg_size    matplotlib's SVG, several times smaller
"""
